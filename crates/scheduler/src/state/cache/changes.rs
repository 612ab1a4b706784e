//! Changes of the cluster that may make refused entries schedulable.

use std::collections::BTreeMap;

use octavo_kube_io::objects::{NodeName, PodUid};

use super::Cache;

/// Changes since the last decisions, each with the cluster revision that it led to.
#[derive(Debug, Default)]
pub(in crate::state) struct Changes {
    /// Nodes with more room, other rules, or fewer neighbours.
    pub(in crate::state) nodes: BTreeMap<NodeName, u64>,
    /// More pods may be evicted or moved.
    pub(in crate::state) victims: Option<u64>,
    /// Pods came, or have other labels, that rules of other pods select.
    pub(in crate::state) neighbours: Option<u64>,
    /// Devices or their attributes have changed, so requests may mean others.
    pub(in crate::state) devices: Option<u64>,
    /// Any entry may be schedulable.
    pub(in crate::state) all: Option<u64>,
}

impl Cache {
    /// Number of changes that could make an unschedulable entry schedulable.
    pub(in crate::state) fn revision(&self) -> u64 {
        self.revision
    }

    /// Notes that a node has more room, other rules, or fewer neighbours.
    pub(in crate::state) fn room_changed(&mut self, node: &NodeName) {
        self.revision += 1;
        self.changes.nodes.insert(node.clone(), self.revision);
    }

    /// Notes that pods may be evicted or moved which could not before.
    pub(in crate::state) fn victims_changed(&mut self) {
        self.revision += 1;
        self.changes.victims = Some(self.revision);
    }

    /// Notes that devices have come or changed, or their attributes.
    pub(in crate::state) fn devices_changed(&mut self) {
        self.revision += 1;
        self.changes.devices = Some(self.revision);
    }

    /// Notes that a pod has got a node to stay, other labels, or is being deleted. That matters if
    /// rules of other pods select it.
    pub(in crate::state) fn neighbour_changed(&mut self, uid: &PodUid) {
        let record = self.pods.get(uid);
        if !record.is_some_and(|record| self.neighbours.is_counted(&record.pod)) {
            return;
        }
        self.revision += 1;
        self.changes.neighbours = Some(self.revision);
    }

    /// Notes a change that may make any entry schedulable.
    pub(in crate::state) fn cluster_changed(&mut self) {
        self.revision += 1;
        self.changes.all = Some(self.revision);
    }

    /// Whether changes have been noted since the last decisions.
    pub(in crate::state) fn has_changes(&self) -> bool {
        let Changes { nodes, victims, neighbours, devices, all } = &self.changes;
        !nodes.is_empty() || [victims, neighbours, devices, all].into_iter().any(Option::is_some)
    }

    /// Notes that pods require other nodes than before. The pods are woken by name.
    pub(in crate::state) fn requirements_changed(&mut self) {
        self.revision += 1;
    }

    /// The changes since the last call.
    pub(in crate::state) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }
}
