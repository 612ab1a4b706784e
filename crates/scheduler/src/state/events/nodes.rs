//! Observed nodes, and the rebuild of the engine cache.

use std::sync::Arc;

use octavo_kube_io::objects::{Node, NodeName};

use crate::state::Scheduler;
use crate::state::cache::nodes::Rebuild;

impl Scheduler {
    pub(in crate::state) fn set_node(&mut self, node: &Arc<Node>) {
        let name = node.name();
        let is_new = self.cache.node(&name).is_none();
        if self.cache.set_node(node) {
            if is_new {
                self.refresh_node(&name);
            }
            self.drop_infeasible_nominations_on(&name);
            self.cache.room_changed(&name);
        }
    }

    /// Notes the time, in seconds since 1970. By it the work on nodes comes nearer, and ends.
    pub fn set_wall_clock(&mut self, seconds: u64) {
        let changed = self.cache.set_wall_clock(seconds);
        self.maintenances_changed(&changed);
    }

    /// Handles nodes for which other work is ahead now, or none.
    pub(in crate::state) fn maintenances_changed(&mut self, nodes: &[NodeName]) {
        for name in nodes {
            self.drop_infeasible_nominations_on(name);
            self.cache.room_changed(name);
        }
    }

    pub(in crate::state) fn drop_node(&mut self, name: &NodeName) {
        if self.cache.remove_node(name) {
            self.drop_nominations_on(name);
            // The pods of its topology domain are fewer.
            self.cache.room_changed(name);
        }
    }

    /// Rebuilds the engine cache if nodes came, went, or have other GPUs.
    pub(in crate::state) fn rebuild_engine_if_stale(&mut self) {
        match self.cache.rebuild_engine_if_stale() {
            None => return,
            Some(Rebuild::SameTerms) => self.refusals.forget_answers(),
            Some(Rebuild::OtherTerms) => self.refusals.clear(),
        }
        self.show_successor_places();
        let names: Vec<_> = self.cache.nodes().keys().cloned().collect();
        for name in names {
            self.refresh_claim_holders(&name);
        }
    }
}
