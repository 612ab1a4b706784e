//! Nodes in the cache and in the engine cache.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::node::FeatureMask;
use octavo_kube_io::objects::{Delta, Node, NodeName};

use super::Cache;
use super::engine_cache::{DesiredNode, EngineCache};
use super::maintenance::Stay;
use super::node::{self, NodeRecord};
use super::node_mask::MaskKey;
use crate::predicates::{Capacity, Usage};

/// What a rebuild of the engine cache changes for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::state) enum Rebuild {
    /// Requests mean what they meant.
    SameTerms,
    /// Requests that name levels or models now mean others.
    OtherTerms,
}

impl Cache {
    /// Nodes by name.
    pub(in crate::state) fn nodes(&self) -> &BTreeMap<NodeName, NodeRecord> {
        &self.nodes
    }

    /// A node.
    pub(in crate::state) fn node(&self, name: &str) -> Option<&NodeRecord> {
        self.nodes.get(name)
    }

    /// Applies an observed node. Returns whether anything changed that decisions see. What claims hold
    /// on it is added by the caller.
    pub(in crate::state) fn set_node(&mut self, node: &Arc<Node>) -> bool {
        let node = &node::without_own_taint(node, &self.config.scheduler_name);
        let name = node.name();
        let capacity = Capacity::of(node);
        self.neighbours.set_node(node);
        if let Some(record) = self.nodes.get_mut(&name) {
            let old = std::mem::replace(&mut record.node, Arc::clone(node));
            if is_same_for_decisions(&old, node) {
                return false;
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
            // Pods may be observed before their node.
            self.recount_node(&name);
        }
        let touched = self.devices.apply_nodes(&Delta::Upsert(Arc::clone(node)));
        if touched.are_models_changed {
            self.models_changed();
        }
        if !touched.hardware.is_empty() {
            self.devices_changed();
        }
        self.track_lost_node(node);
        self.sync_maintenance(&name);
        self.sync_node(&name);
        true
    }

    /// Removes a deleted node. Returns whether it was known.
    pub(in crate::state) fn remove_node(&mut self, name: &NodeName) -> bool {
        let Some(record) = self.nodes.remove(name) else { return false };
        self.neighbours.drop_node(name);
        self.devices.apply_nodes(&Delta::Delete(record.node));
        self.lost.remove(name);
        self.maintenances.forget(name);
        self.is_engine_stale = true;
        true
    }

    /// Notes that GPU models have come or gone: the engine cache is rebuilt.
    pub(in crate::state) fn models_changed(&mut self) {
        self.is_engine_stale = true;
        self.cluster_changed();
    }

    /// Whether the engine cache waits to be rebuilt.
    pub(in crate::state) fn is_engine_stale(&self) -> bool {
        self.is_engine_stale
    }

    /// Rebuilds the engine cache if nodes came, went, or have other GPUs. Claims and places that hold
    /// GPUs by themselves are added by the caller.
    pub(in crate::state) fn rebuild_engine_if_stale(&mut self) -> Option<Rebuild> {
        if !std::mem::take(&mut self.is_engine_stale) {
            return None;
        }
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
        let world = &self.engine.world;
        let is_same = old_levels == world.topology.levels() && old_models == world.cluster.models();
        if !is_same {
            self.cluster_changed();
        }
        // Changes of workloads while the engine cache was stale were not seen.
        self.victims_changed();
        for uid in self.pods_by_age() {
            self.refresh_pod(&uid);
        }
        self.claim_holders.clear();
        Some(if is_same { Rebuild::SameTerms } else { Rebuild::OtherTerms })
    }

    /// Updates a node's features and its form in the engine cache.
    pub(in crate::state) fn sync_node(&mut self, name: &NodeName) {
        let Some(record) = self.nodes.get(name) else { return };
        let features = self.features_of(record);
        let Some(record) = self.nodes.get_mut(name) else { return };
        record.features = features;
        if self.is_engine_stale {
            return;
        }
        let desired = self.desired_node(name);
        let Some(desired) = desired else { return };
        if self.engine.node(name).is_none() {
            self.add_to_engine(name, &desired);
            return;
        }
        let engine = &mut self.engine;
        let has_other_labels = engine.labels(name) != Some(&desired.spec.labels);
        if has_other_labels || engine.set_class(name, &desired.spec.class).is_err() {
            self.is_engine_stale = true;
            // Its domains have other nodes now, so other nodes may serve.
            self.cluster_changed();
            return;
        }
        engine.set_closed(name, desired.closed);
        engine.set_risks(name, &desired.risks);
    }

    /// Adds a node to the engine cache, with its pods.
    fn add_to_engine(&mut self, name: &NodeName, desired: &DesiredNode) {
        let levels = {
            let known = self.engine.level_labels();
            let is_used =
                |label: &str| known.contains(label) || desired.spec.labels.contains_key(label);
            self.config.levels(is_used)
        };
        if !self.engine.add_node(desired, &levels) {
            self.is_engine_stale = true;
            return;
        }
        self.are_policies_checked = false;
        let uids: Vec<_> = self.pods_on(name).cloned().collect();
        for uid in uids {
            self.refresh_pod(&uid);
        }
    }

    /// Bits of the requirements that a node satisfies.
    fn features_of(&self, record: &NodeRecord) -> FeatureMask {
        let is_satisfied = |key: &MaskKey| self.satisfies(record, key);
        self.masks
            .iter()
            .filter(|(_, key)| is_satisfied(key))
            .fold(FeatureMask::NONE, |bits, (bit, _)| FeatureMask(bits.0 | 1 << bit))
    }

    /// Checks one requirement on all nodes.
    pub(in crate::state) fn recompute_mask_bit(&mut self, bit: u8) {
        let Some(key) = self.masks.key_of(bit).cloned() else { return };
        let names: Vec<_> = self.nodes.keys().cloned().collect();
        for name in names {
            let Some(record) = self.nodes.get(&name) else { continue };
            let is_satisfied = self.satisfies(record, &key);
            let Some(record) = self.nodes.get_mut(&name) else { continue };
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

    /// Whether a node satisfies a requirement.
    fn satisfies(&self, record: &NodeRecord, key: &MaskKey) -> bool {
        let name = &record.node.meta.name.name;
        key.gpus.suits(self.devices.gpus(name))
            && key.rules.check(&record.node).is_ok()
            && !(key.is_kept_from_work && self.work_before_end(Stay::Open, name).is_some())
    }

    fn desired_node(&self, name: &NodeName) -> Option<DesiredNode> {
        let record = self.nodes.get(name)?;
        let gpus = self.devices.gpus(name);
        let (owner, labels) = (&self.config.scheduler_name, self.level_labels());
        Some(node::desired_node(record, gpus, owner, &labels, &self.gpu_risks))
    }

    /// Label keys of the topology levels.
    fn level_labels(&self) -> Vec<String> {
        self.config.levels.iter().map(|level| level.label.clone()).collect()
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
