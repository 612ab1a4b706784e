//! Competing demand: other pending entries. They determine typical requests and what each tenant
//! wants. Policies that use neither skip them.

use std::sync::Arc;

use octavo_engine::gang::Group;
use octavo_engine::gpu::ModelSet;
use octavo_engine::node::FeatureMask;
use octavo_engine::objective::CostTerm;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::workload::Profile;
use octavo_engine::{Gang, Shape};

use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::pod::{self, PodRecord};
use crate::state::queue::QueueKey;

/// Entries that are considered, from the head of the queue.
const MAX_COMPETING_GANGS: usize = 64;

impl Scheduler {
    /// The other pending gangs in queue order, if the policy uses them.
    pub(in crate::state) fn competing_gangs(
        &self,
        gang: &Gang,
        policy: &PlacementPolicy,
    ) -> Vec<Gang> {
        // A single pod that only the packing policy places: that policy learns typical requests by
        // itself.
        let is_packed = gang.count() == 1 && policy.is_packing_alone();
        let terms = [CostTerm::GpuMilliStranded, CostTerm::PackingPrice, CostTerm::FairnessDeficit];
        if is_packed || !terms.iter().any(|term| policy.has(*term)) {
            return Vec::new();
        }
        // One more, because the requester may be among them. Entries without known requests are not
        // replaced by later ones.
        let first = self.queue.in_order().take(MAX_COMPETING_GANGS + 1);
        let competing = first.filter_map(|position| self.cache.pending_gang(&position.key));
        competing
            .filter(|other| other.profile.name != gang.profile.name)
            .take(MAX_COMPETING_GANGS)
            .collect()
    }
}

impl Cache {
    /// The pending members of an entry as a gang; `None` if there are none.
    fn pending_gang(&self, key: &QueueKey) -> Option<Gang> {
        let mut gang: Option<Gang> = None;
        let mut estimated: Option<Arc<Shape>> = None;
        for uid in self.pods_of(key) {
            let Some(record) = self.pod(&uid) else { continue };
            if !record.is_pending_for(&self.config().scheduler_name) {
                continue;
            }
            let gang = gang.get_or_insert_with(|| Gang {
                profile: record
                    .profile
                    .as_deref()
                    .map_or_else(|| self.profile_of(record), Profile::clone),
                groups: Vec::new(),
            });
            let shape = record.shape.as_ref().or(estimated.as_ref()).cloned();
            // Members that were never decided on are assumed to be equal.
            let Some(shape) = shape.or_else(|| self.estimate_shape(record)) else { continue };
            if record.shape.is_none() {
                estimated = Some(Arc::clone(&shape));
            }
            if let Some(group) = gang.groups.iter_mut().find(|group| *group.shape == *shape) {
                (group.count, group.min) = (group.count + 1, group.min + 1);
            } else {
                let name = format!("members-{}", gang.groups.len());
                gang.groups.push(Group::new(name, shape, 1));
            }
        }
        gang.filter(|gang| !gang.groups.is_empty())
    }

    /// The request of a pod that was never decided on, without its node constraints.
    fn estimate_shape(&self, record: &PodRecord) -> Option<Arc<Shape>> {
        let ask = self.devices().ask(&record.pod).ok()?;
        let models = if ask.demand.is_some() { ask.models } else { ModelSet::ALL };
        let resources = pod::resources(&record.footprint);
        let shape = Shape::new(resources, ask.demand);
        Some(Arc::new(Shape { models, tolerates: FeatureMask(u64::MAX), ..shape }))
    }
}
