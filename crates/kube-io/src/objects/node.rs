//! Nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_dra::Quantity;

use super::{Meta, NodeName};

/// A node (`core/v1` `Node`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Metadata.
    pub meta: Meta,
    /// Whether it is cordoned (`spec.unschedulable`).
    pub is_unschedulable: bool,
    /// Taints.
    pub taints: Vec<NodeTaint>,
    /// `status.allocatable`.
    pub allocatable: BTreeMap<String, Quantity>,
    /// `status.capacity`.
    pub capacity: BTreeMap<String, Quantity>,
    /// Condition `Ready`; `None` if absent or unknown.
    pub is_ready: Option<bool>,
}

impl Node {
    /// Its name.
    pub fn name(&self) -> NodeName {
        Arc::clone(&self.meta.name.name).into()
    }
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTaint {
    /// Key.
    pub key: String,
    /// Value; may be empty.
    pub value: String,
    /// Effect.
    pub effect: TaintEffect,
}

/// Effect of a node taint on pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// New pods are not scheduled.
    NoSchedule,
    /// New pods are preferably not scheduled.
    PreferNoSchedule,
    /// New pods are not scheduled, and running ones are evicted.
    NoExecute,
}
