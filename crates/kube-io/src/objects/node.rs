//! Nodes.

use std::collections::BTreeMap;

use octavo_dra::Quantity;

use super::Meta;

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
    /// Condition `Ready`: `None` where it is not there or unknown.
    pub is_ready: Option<bool>,
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTaint {
    /// Key.
    pub key: String,
    /// Value; empty if there is none.
    pub value: String,
    /// Effect.
    pub effect: TaintEffect,
}

/// What a node's taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// New ones stay away.
    NoSchedule,
    /// New ones had better stay away.
    PreferNoSchedule,
    /// New ones stay away, and those that run must go.
    NoExecute,
}
