//! Constraints of groups beyond free capacity: forbidden nodes, and limits of members per node.
//! Most gangs have none and pay nothing for them.

use std::collections::BTreeMap;

use crate::gang::{Group, NodeLimit};
use crate::node::NodeId;
use crate::solve::NodeSet;

/// Rules of one group.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupConstraints {
    forbidden: NodeSet,
    limits: Vec<NodeLimit>,
    /// Members that have their places already.
    pinned: LimitUsage,
}

/// Members on nodes, by limit: of all groups that share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitUsage(BTreeMap<(u32, NodeId), u32>);

impl GroupConstraints {
    pub(crate) fn of(group: &Group, pinned: &LimitUsage) -> Self {
        let pinned = if group.limits.is_empty() { LimitUsage::default() } else { pinned.clone() };
        Self { forbidden: group.forbidden.clone(), limits: group.limits.clone(), pinned }
    }

    /// Whether there are none.
    pub(crate) fn is_none(&self) -> bool {
        self.forbidden.is_empty() && self.limits.is_empty()
    }

    pub(crate) fn forbidden(&self) -> &NodeSet {
        &self.forbidden
    }

    pub(crate) fn limits(&self) -> &[NodeLimit] {
        &self.limits
    }

    /// How many more members a node may have beside the pinned ones and `usage`.
    pub(crate) fn remaining(&self, node: NodeId, usage: &LimitUsage) -> u32 {
        self.remaining_each(node, usage).min().unwrap_or(u32::MAX)
    }

    /// The remaining number by each constraint alone. Nodes of one state with equal results are
    /// equivalent.
    pub(crate) fn remaining_each(
        &self,
        node: NodeId,
        usage: &LimitUsage,
    ) -> impl Iterator<Item = u32> {
        let open = if self.forbidden.contains(&node) { 0 } else { u32::MAX };
        let left = move |limit: &NodeLimit| {
            let taken = self.pinned.on(limit.over, node) + usage.on(limit.over, node);
            limit.most.saturating_sub(taken)
        };
        std::iter::once(open).chain(self.limits.iter().map(left))
    }
}

impl LimitUsage {
    fn on(&self, over: u32, node: NodeId) -> u32 {
        self.0.get(&(over, node)).copied().unwrap_or_default()
    }

    /// Adds members of a group with these limits to a node.
    pub(crate) fn add(&mut self, limits: &[NodeLimit], node: NodeId, count: u32) {
        for limit in limits {
            let used = self.0.entry((limit.over, node)).or_default();
            *used = used.saturating_add(count);
        }
    }

    /// Removes members of a group with these limits from a node.
    pub(crate) fn remove(&mut self, limits: &[NodeLimit], node: NodeId, count: u32) {
        for limit in limits {
            if let Some(used) = self.0.get_mut(&(limit.over, node)) {
                *used = used.saturating_sub(count);
            }
        }
    }
}
