//! Requests in the engine's terms: shapes and node requirements of pending pods, workloads of
//! running ones.

use std::sync::Arc;

use octavo_api::names::EXTENDED_RESOURCE_GPU;
use octavo_engine::gpu::{ModelSet, WHOLE};
use octavo_engine::node::FeatureMask;
use octavo_engine::placement::GpuParts;
use octavo_engine::shape::GpuDemand;
use octavo_engine::workload::{Coupling, Profile, TopologyConstraint};
use octavo_engine::{GpuPart, LevelId, Shape};

use octavo_kube_io::objects::PodUid;

use super::Cache;
use super::engine_cache::DesiredWorkload;
use super::maintenance::Stay;
use super::node::GpuUse;
use super::node_mask::{MaskKey, NodeMask};
use super::pod::{self, Place, PlaceState, PodRecord};
use crate::devices::{Ask, GpuSource};
use crate::groups::{GroupSpec, PlacementHints};
use crate::predicates::NodeFilterKey;

impl PodRecord {
    /// Names of the pod's claims that exist.
    pub(in crate::state) fn claim_names(&self) -> impl Iterator<Item = &str> {
        self.pod.spec.claims.iter().filter_map(|claim| {
            let generated = || self.pod.claims.get(&claim.name)?.as_deref();
            claim.claim.as_deref().or_else(generated)
        })
    }

    /// How the pod requests GPUs.
    fn gpu_use(&self, ask: &Ask) -> GpuUse {
        let is_asked = |(name, _): (&str, i128)| name == EXTENDED_RESOURCE_GPU;
        if self.footprint.extended().any(is_asked) {
            GpuUse::Resource(ask.extended.contains_key(EXTENDED_RESOURCE_GPU))
        } else if ask.demand.is_some() {
            GpuUse::Claims
        } else {
            GpuUse::None
        }
    }
}

impl Cache {
    /// The shape of a pending pod, and how its node requirement is checked. The flag tells that the
    /// requirement is new, and its bit may have stood for another one before.
    pub(in crate::state) fn shape_of_waiting(
        &mut self,
        uid: &PodUid,
        ask: &Ask,
    ) -> Option<(Arc<Shape>, NodeMask, bool)> {
        let record = self.pods.get(uid)?;
        let uses = record.gpu_use(ask);
        let stay = self.stay_with(record, uses);
        let is_current = record.stay == stay;
        let current = record.node_mask.as_ref().filter(|(_, _, used)| *used == uses && is_current);
        let (mask, is_new) = match current {
            Some((mask, ..)) => (*mask, false),
            None => self.acquire_mask(uid, uses, stay)?,
        };
        let record = self.pods.get_mut(uid)?;
        let shape = Shape {
            resources: pod::resources(&record.footprint),
            gpus: ask.demand.clone(),
            models: if ask.demand.is_some() { ask.models } else { ModelSet::ALL },
            needs: mask.required_features(),
            tolerates: FeatureMask(u64::MAX),
        };
        let shape = match &record.shape {
            Some(cached) if **cached == shape => Arc::clone(cached),
            _ => Arc::clone(record.shape.insert(Arc::new(shape))),
        };
        if !std::mem::replace(&mut record.has_arrived, true) {
            self.engine.planner.arrived(&shape);
        }
        Some((shape, mask, is_new))
    }

    fn acquire_mask(&mut self, uid: &PodUid, uses: GpuUse, stay: Stay) -> Option<(NodeMask, bool)> {
        let record = self.pods.get_mut(uid)?;
        if let Some((old, ..)) = record.node_mask.take() {
            self.masks.release(old);
        }
        let rules = NodeFilterKey::of(&record.pod, &self.volumes);
        let is_kept_from_work = stay == Stay::Open;
        let key = MaskKey { rules: rules.clone(), gpus: uses, is_kept_from_work };
        let (mask, is_new) = self.masks.acquire(&key, &record.pod);
        record.node_mask = Some((mask, rules, uses));
        record.stay = stay;
        let NodeMask::Bit(bit) = mask else { return Some((mask, false)) };
        if is_new {
            self.recompute_mask_bit(bit);
        }
        Some((mask, is_new))
    }

    /// Forgets the request of a pod, which is then computed again.
    pub(in crate::state) fn forget_request(&mut self, uid: &PodUid) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        record.shape = None;
        record.profile = None;
        if let Some((mask, ..)) = record.node_mask.take() {
            self.masks.release(mask);
        }
    }

    /// Forgets the profile of a pod's workload, which is then computed again.
    pub(in crate::state) fn forget_profile(&mut self, uid: &PodUid) {
        if let Some(record) = self.pods.get_mut(uid) {
            record.profile = None;
        }
    }

    /// Parts of GPUs of a placed pod: from its claims, from its node's device plugin, or from the
    /// decision until these are observed.
    pub(in crate::state) fn gpus_of(&self, uid: &PodUid, place: &Place) -> GpuParts {
        if matches!(place.state, PlaceState::Nominated | PlaceState::Reserved) {
            return place.gpus.clone();
        }
        let Some(record) = self.pods.get(uid) else { return GpuParts::new() };
        let is_plugin =
            self.devices.gpus(&place.node).is_some_and(|gpus| gpus.source == GpuSource::Plugin);
        let cached = self.engine.desired(uid).filter(|cached| cached.node == place.node);
        if is_plugin {
            let requested =
                record.footprint.extended().find(|(name, _)| *name == EXTENDED_RESOURCE_GPU);
            let count = usize::try_from(requested.map_or(0, |(_, count)| count)).unwrap_or(0);
            let assigned = cached.map_or(&place.gpus, |cached| &cached.gpus);
            return self.plugin_parts(&place.node, assigned, count);
        }
        let mut parts = GpuParts::new();
        // A claim of several pods belongs to none: its devices stay in use when one of them leaves.
        for held in self.devices.held_alone_by(&place.node, uid) {
            parts.extend(held.parts);
        }
        parts.sort_unstable();
        parts
    }

    /// Whole GPUs on a node with a device plugin: those assigned before, then the first free ones.
    /// The API does not tell which GPUs the plugin allocated.
    fn plugin_parts(&self, node: &str, assigned: &GpuParts, count: usize) -> GpuParts {
        let Some(id) = self.engine.node(node) else { return GpuParts::new() };
        let memory_mib = self.engine.memory_mib(id);
        let part = |gpu| GpuPart {
            gpu,
            milli: WHOLE,
            slices: octavo_engine::gpu::Slices::NONE,
            memory_mib,
        };
        let mut parts: GpuParts = assigned.iter().take(count).copied().collect();
        let free = (0_u16..).zip(self.engine.world.cluster.gpus(id));
        for (gpu, free) in free {
            if parts.len() >= count {
                break;
            }
            if free.is_unused() && !parts.iter().any(|part| part.gpu == gpu) {
                parts.push(part(gpu));
            }
        }
        parts.sort_unstable();
        parts
    }

    /// The shape of a placed pod. For one that this process has not seen pending it is made from
    /// the request, without a bit for the node requirement: running pods would use up the bits. If
    /// the request cannot be resolved, it is derived from what the pod holds.
    pub(in crate::state) fn shape_of_placed(
        &mut self,
        uid: &PodUid,
        gpus: &GpuParts,
    ) -> Option<Arc<Shape>> {
        let record = self.pods.get(uid)?;
        let resources = pod::resources(&record.footprint);
        let cached = record.shape.as_ref().filter(|shape| shape.resources == resources);
        if let Some(cached) = cached {
            return Some(Arc::clone(cached));
        }
        let ask = (!gpus.is_empty()).then(|| self.devices.ask_again(&record.pod));
        let shape = match ask {
            Some(Ok(Ask { demand, models, .. })) if demand.is_some() => Shape {
                resources,
                gpus: demand,
                models,
                needs: FeatureMask::NONE,
                tolerates: FeatureMask(u64::MAX),
            },
            _ => Shape::new(resources, demand_of(gpus)),
        };
        let record = self.pods.get_mut(uid)?;
        Some(Arc::clone(record.shape.insert(Arc::new(shape))))
    }

    /// The workload of a placed pod.
    pub(in crate::state) fn workload_of(&mut self, uid: &PodUid) -> Option<DesiredWorkload> {
        let record = self.pods.get(uid)?;
        let member = record.member.clone();
        let (min_members, coupling) = match &member {
            None => (1, Coupling::default()),
            Some(member) => {
                let is_many = member.spec.subs.len() > 1;
                let is_tight = member
                    .spec
                    .subs
                    .iter()
                    .any(|sub| sub.required.is_some() || sub.segment.is_some());
                let is_whole = member.spec.is_whole || is_many || is_tight;
                (member.spec.min, Coupling { is_whole, is_fixed: is_tight })
            }
        };
        let profile = if let Some(profile) = &record.profile {
            Arc::clone(profile)
        } else {
            let profile = Arc::new(self.profile_of(record));
            let record = self.pods.get_mut(uid)?;
            Arc::clone(record.profile.insert(profile))
        };
        Some(DesiredWorkload { profile, min_members, coupling })
    }

    /// The profile of a pod's workload.
    pub(in crate::state) fn profile_of(&self, record: &PodRecord) -> Profile {
        let pod = &record.pod;
        let is_ours = pod.spec.scheduler == self.config.scheduler_name;
        let is_protected = record.eviction_retry_at > self.now;
        let tenant = Arc::clone(&pod.meta.name.namespace);
        if let Some(member) = &record.member {
            let spec = &member.spec;
            return Profile {
                name: member.group.to_string().into(),
                tenant,
                priority: spec.priority.unwrap_or(pod.spec.priority),
                is_preemptible: spec.is_preemptible && !is_protected,
                is_movable: spec.is_movable && is_ours && !is_protected,
                seconds_at_risk: spec.seconds_at_risk,
                topology: self
                    .wishes_of(spec)
                    .map_or(TopologyConstraint::default(), |wishes| wishes.group),
            };
        }
        let hints = PlacementHints::of(&pod.meta).unwrap_or_default();
        let level = |name: &Option<Arc<str>>| name.as_deref().and_then(|name| self.level(name));
        Profile {
            name: format!("pod {}", pod.meta.name).into(),
            tenant,
            priority: pod.spec.priority,
            is_preemptible: !is_protected,
            // False by default: the pod may run something that cannot be restarted.
            is_movable: is_ours && !is_protected && hints.is_movable.unwrap_or(false),
            seconds_at_risk: hints.seconds_at_risk.unwrap_or(0),
            topology: TopologyConstraint {
                required: level(&hints.required),
                preferred: level(&hints.preferred),
            },
        }
    }

    /// The engine's level of a level name or label key.
    pub(in crate::state) fn level(&self, name: &str) -> Option<LevelId> {
        let by_label = self.config.levels.iter().find(|level| level.label == name);
        let name = by_label.map_or(name, |level| level.name.as_str());
        self.engine.world.topology.level_named(name)
    }

    /// Topology wishes of a gang, with its levels resolved.
    pub(in crate::state) fn wishes_of(
        &self,
        spec: &GroupSpec,
    ) -> Result<crate::groups::TopologyRequests, crate::groups::GroupError> {
        let levels: Vec<_> =
            self.engine.world.topology.levels().iter().skip(1).map(|name| &**name).collect();
        spec.resolve_topology(|name| self.level(name), &levels.join(", "))
    }
}

/// A demand that takes these parts.
pub(in crate::state) fn demand_of(gpus: &GpuParts) -> GpuDemand {
    let count = u16::try_from(gpus.len()).unwrap_or(u16::MAX);
    match gpus.first() {
        None => GpuDemand::None,
        Some(part) if part.slices.is_empty() && part.milli >= WHOLE => GpuDemand::Whole { count },
        Some(part) if part.slices.is_empty() => {
            let (milli, memory_mib) = (part.milli, part.memory_mib);
            GpuDemand::Share { count, milli, memory_mib }
        }
        // The MIG profile is unknown. Such a pod is not moved, and nothing is learned from it.
        Some(_) => GpuDemand::Mig { count, profile: "".into() },
    }
}
