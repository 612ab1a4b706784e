//! What a node has, and what its pods request.

use std::collections::BTreeMap;

use octavo_kube_io::objects::{HostPort, Node, NodeName, ObjectName};

use super::{Amounts, Disk, PodRequests};

/// What a node has for pods (`status.allocatable`). Computed again when the node changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// The node's name.
    pub node: NodeName,
    /// Most pods.
    pub pods: i128,
    /// Amounts.
    pub amounts: Amounts,
}

impl Capacity {
    /// What a node has.
    pub fn of(node: &Node) -> Self {
        Self {
            node: node.name(),
            pods: node.allocatable.get("pods").map_or(0, |pods| pods.value()),
            amounts: Amounts::of(&node.allocatable),
        }
    }
}

/// What the pods of a node request together. It is equal for the same pods, in whatever order they
/// came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub(super) pods: u32,
    pub(super) amounts: Amounts,
    /// With the number of pods that have each.
    pub(super) ports: BTreeMap<HostPort, u32>,
    pub(super) disks: BTreeMap<Disk, u32>,
    pub(super) claims: BTreeMap<ObjectName, u32>,
}

impl Usage {
    /// Adds a pod. Pods that have ended must not be added.
    pub fn add(&mut self, requests: &PodRequests) {
        self.pods += 1;
        self.amounts.add(&requests.amounts, 1);
        requests.ports.iter().for_each(|port| increment(&mut self.ports, port));
        requests.disks.iter().for_each(|disk| increment(&mut self.disks, disk));
        requests.claims.iter().for_each(|claim| increment(&mut self.claims, claim));
    }

    /// Removes a pod that was added.
    pub fn remove(&mut self, requests: &PodRequests) {
        self.pods = self.pods.saturating_sub(1);
        self.amounts.add(&requests.amounts, -1);
        requests.ports.iter().for_each(|port| decrement(&mut self.ports, port));
        requests.disks.iter().for_each(|disk| decrement(&mut self.disks, disk));
        requests.claims.iter().for_each(|claim| decrement(&mut self.claims, claim));
    }
}

/// Counts one more.
pub(super) fn increment<K: Clone + Ord>(counts: &mut BTreeMap<K, u32>, one: &K) {
    *counts.entry(one.clone()).or_default() += 1;
}

/// Counts one less.
pub(super) fn decrement<K: Ord>(counts: &mut BTreeMap<K, u32>, one: &K) {
    let Some(count) = counts.get_mut(one) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(one);
    }
}
