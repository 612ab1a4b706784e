//! Nodes in the cache and in the engine cache.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::node::FeatureMask;
use octavo_kube_io::objects::{Delta, Node, NodeName, PodUid};

use super::Scheduler;
use super::engine_cache::{DesiredNode, EngineCache};
use super::node::{self, NodeRecord};
use super::node_mask::MaskKey;
use crate::predicates::{Capacity, Usage};

impl Scheduler {
    pub(super) fn set_node(&mut self, node: &Arc<Node>) {
        let node = &node::without_own_taint(node, &self.config.scheduler_name);
        let name = node.name();
        let capacity = Capacity::of(node);
        self.neighbours.set_node(node);
        if let Some(record) = self.nodes.get_mut(&name) {
            let old = std::mem::replace(&mut record.node, Arc::clone(node));
            if is_same_for_decisions(&old, node) {
                return;
            }
            record.capacity = capacity;
        } else {
            let record = NodeRecord {
                node: Arc::clone(node),
                capacity,
                usage: Usage::default(),
                features: FeatureMask::NONE,
            };
            self.nodes.insert(name.clone(), record);
            self.is_engine_stale = true;
            // Pods may be observed before their node.
            self.recount_node(&name);
        }
        let touched = self.devices.apply_nodes(&Delta::Upsert(Arc::clone(node)));
        if touched.are_models_changed {
            self.is_engine_stale = true;
            self.cluster_changed();
        }
        if !touched.hardware.is_empty() {
            self.devices_changed();
        }
        self.track_lost_node(node);
        self.sync_node(&name);
        self.drop_infeasible_nominations_on(&name);
        self.room_changed(&name);
    }

    pub(super) fn drop_node(&mut self, name: &NodeName) {
        let Some(record) = self.nodes.remove(name) else { return };
        self.neighbours.drop_node(name);
        self.devices.apply_nodes(&Delta::Delete(record.node));
        self.lost.remove(name);
        self.is_engine_stale = true;
        self.drop_nominations_on(name);
        // The pods of its topology domain are fewer.
        self.room_changed(name);
    }

    /// Updates a node's features and its form in the engine cache.
    pub(super) fn sync_node(&mut self, name: &NodeName) {
        let Some(record) = self.nodes.get(name) else { return };
        let features = self.features_of(record);
        let Some(record) = self.nodes.get_mut(name) else { return };
        record.features = features;
        if self.is_engine_stale {
            return;
        }
        let desired = self.desired_node(name);
        let Some(desired) = desired else { return };
        let engine = &mut self.engine;
        let has_other_labels = engine.labels(name) != Some(&desired.spec.labels);
        if has_other_labels || engine.set_class(name, &desired.spec.class).is_err() {
            self.is_engine_stale = true;
            // Its domains have other nodes now, so other nodes may serve.
            self.cluster_changed();
            return;
        }
        engine.set_closed(name, desired.closed);
    }

    /// Bits of the requirements that a node satisfies.
    fn features_of(&self, record: &NodeRecord) -> FeatureMask {
        let gpus = self.devices.gpus(&record.node.meta.name.name);
        let is_satisfied =
            |key: &MaskKey| key.gpus.suits(gpus) && key.rules.check(&record.node).is_ok();
        self.masks
            .iter()
            .filter(|(_, key)| is_satisfied(key))
            .fold(FeatureMask::NONE, |bits, (bit, _)| FeatureMask(bits.0 | 1 << bit))
    }

    /// Checks one requirement on all nodes.
    pub(super) fn recompute_mask_bit(&mut self, bit: u8) {
        let Some(key) = self.masks.key_of(bit).cloned() else { return };
        let names: Vec<_> = self.nodes.keys().cloned().collect();
        for name in names {
            let gpus = self.devices.gpus(&name);
            let Some(record) = self.nodes.get_mut(&name) else { continue };
            let is_satisfied = key.gpus.suits(gpus) && key.rules.check(&record.node).is_ok();
            let bits = record.features.0 & !(1 << bit) | u64::from(is_satisfied) << bit;
            if bits == record.features.0 {
                continue;
            }
            record.features = FeatureMask(bits);
            if !self.is_engine_stale {
                self.engine.set_features(&name, FeatureMask(bits));
            }
        }
    }

    fn desired_node(&self, name: &NodeName) -> Option<DesiredNode> {
        let record = self.nodes.get(name)?;
        let gpus = self.devices.gpus(name);
        Some(node::desired_node(record, gpus, &self.config.scheduler_name, &self.level_labels()))
    }

    /// Label keys of the topology levels.
    fn level_labels(&self) -> Vec<String> {
        self.config.levels.iter().map(|level| level.label.clone()).collect()
    }

    /// Rebuilds the engine cache if nodes came, went, or have other GPUs.
    pub(super) fn rebuild_engine_if_stale(&mut self) {
        if !self.is_engine_stale {
            return;
        }
        self.is_engine_stale = false;
        self.are_policies_checked = false;
        let desired_nodes: Vec<_> =
            self.nodes.keys().filter_map(|name| self.desired_node(name)).collect();
        let labels: BTreeSet<&str> = desired_nodes
            .iter()
            .flat_map(|desired| desired.spec.labels.keys().map(String::as_str))
            .collect();
        let levels = self.config.levels(|label| labels.contains(label));
        let old_levels = self.engine.world.topology.levels().to_vec();
        let old_models = self.engine.world.cluster.models().to_vec();
        let learned = self.engine.planner.saved(&self.engine.world.cluster);
        let old_fault = self.engine.topology_fault.take();
        match EngineCache::new(self.devices.models(), &levels, &desired_nodes, learned.as_ref()) {
            Ok(engine) => self.engine = engine,
            Err(misfit) => {
                // A defect: node names are unique and models come from the table. Scheduling
                // without GPUs is better than none.
                tracing::error!(%misfit, "the engine rejects the cluster, which is a defect; scheduling goes on without GPUs");
                let bare: Vec<_> = desired_nodes.iter().map(DesiredNode::without_gpus).collect();
                if let Ok(engine) = EngineCache::new(&[], &levels, &bare, None) {
                    self.engine = engine;
                }
            }
        }
        if let Some(fault) = &self.engine.topology_fault
            && old_fault.as_ref() != Some(fault)
        {
            tracing::warn!(%fault, "topology labels contradict one another; their domains are distinguished by path");
        }
        if old_levels == self.engine.world.topology.levels()
            && old_models == self.engine.world.cluster.models()
        {
            self.refusals.forget_answers();
        } else {
            // Requests that name levels or models now mean others.
            self.refusals.clear();
            self.cluster_changed();
        }
        // Changes of workloads while the engine cache was stale were not seen.
        self.victims_changed();
        let uids: Vec<_> = self.pods_by_age();
        for uid in uids {
            self.refresh_pod(&uid);
        }
        self.show_successor_places();
        self.claim_holders.clear();
        let names: Vec<_> = self.nodes.keys().cloned().collect();
        for name in names {
            self.refresh_claim_holders(&name);
        }
    }

    /// Pods by creation time.
    fn pods_by_age(&self) -> Vec<PodUid> {
        let mut pods: Vec<_> = self.pods.values().map(|record| &record.pod.meta).collect();
        pods.sort_by_key(|meta| (meta.created, &meta.name));
        pods.into_iter().map(|meta| PodUid::from(Arc::clone(&meta.uid))).collect()
    }

    /// Recounts the usage of a node.
    fn recount_node(&mut self, name: &NodeName) {
        let uids: Vec<_> = self.on_node.get(name).into_iter().flatten().cloned().collect();
        for uid in uids {
            if let Some(record) = self.pods.get_mut(&uid) {
                record.counted_on = None;
                record.neighbour_on = None;
            }
            self.refresh_pod(&uid);
        }
    }
}

/// Whether decisions see no difference between two versions of a node: heartbeats and images do not
/// matter.
fn is_same_for_decisions(old: &Node, new: &Node) -> bool {
    (&old.meta.labels, &old.taints, &old.allocatable, &old.capacity)
        == (&new.meta.labels, &new.taints, &new.allocatable, &new.capacity)
        && (old.is_unschedulable, old.is_ready) == (new.is_unschedulable, new.is_ready)
}
