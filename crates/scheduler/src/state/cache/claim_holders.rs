//! Claims that hold GPUs without a single placed pod as owner.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::workload::{Coupling, Profile};
use octavo_engine::{Resources, Shape};
use octavo_kube_io::objects::NodeName;

use super::Cache;
use super::engine_cache::{DesiredMember, DesiredWorkload, Holder};
use super::shape::demand_of;

impl Cache {
    /// Refreshes a node after the holders of its devices may have changed. For example a claim of
    /// one pod becomes shared by two, or the reverse. Nodes without devices in use need no refresh
    /// of their pods.
    pub(in crate::state) fn holders_changed(
        &mut self,
        node: &NodeName,
        is_victim: impl Fn(&str) -> bool,
    ) {
        if self.devices.held(node).is_empty() {
            self.refresh_claim_holders(node, is_victim);
        } else {
            self.refresh_node(node, is_victim);
        }
    }

    /// Refreshes all pods and claims that hold devices of a node.
    pub(in crate::state) fn refresh_node(
        &mut self,
        node: &NodeName,
        is_victim: impl Fn(&str) -> bool,
    ) {
        let uids: Vec<_> = self.pods_on(node).cloned().collect();
        let claim_users = self.devices.held(node).into_iter().flat_map(|held| held.pods);
        let all: BTreeSet<_> = uids.into_iter().chain(claim_users).collect();
        // Claims that hold devices by themselves go first and last. So a pod that takes over such
        // devices finds them free.
        self.refresh_claim_holders(node, &is_victim);
        for uid in all {
            self.refresh_pod(&uid);
        }
        self.refresh_claim_holders(node, &is_victim);
    }

    /// Nodes whose claims were refreshed since the engine cache was built.
    pub(in crate::state) fn nodes_with_claim_holders(&self) -> Vec<NodeName> {
        self.claim_holders.keys().cloned().collect()
    }

    /// Refreshes the claims of a node that have no single placed pod as owner. They hold their
    /// devices by themselves. `is_victim` tells the victims of nominations, departed ones included.
    pub(in crate::state) fn refresh_claim_holders(
        &mut self,
        node: &NodeName,
        is_victim: impl Fn(&str) -> bool,
    ) {
        if self.is_engine_stale {
            return;
        }
        let mut residents: BTreeSet<Holder> = BTreeSet::new();
        for held in self.devices.held(node) {
            let owner = held.pods.iter().next().filter(|_| held.pods.len() == 1);
            let is_owned = owner.and_then(|uid| self.pods.get(uid)).is_some_and(|record| {
                record.occupies() && record.place.as_ref().is_some_and(|place| place.node == *node)
            });
            // Devices of a nomination's victims are reserved for its pods.
            let is_nominated = !held.pods.is_empty() && held.pods.iter().all(|uid| is_victim(uid));
            if is_owned || is_nominated || held.parts.is_empty() {
                continue;
            }
            let holder: Holder = format!("claim:{}", held.claim).into();
            let profile = Profile {
                is_preemptible: false,
                is_movable: false,
                tenant: Arc::clone(&held.name.namespace),
                ..Profile::new(format!("claim {}", held.name))
            };
            let shape = Shape::new(Resources::default(), demand_of(&held.parts));
            let workload = DesiredWorkload {
                profile: Arc::new(profile),
                min_members: 1,
                coupling: Coupling::default(),
            };
            let desired = DesiredMember {
                workload,
                shape: Arc::new(shape),
                node: node.clone(),
                gpus: held.parts,
                budget: None,
            };
            self.engine.set_desired(&holder, Some(desired));
            residents.insert(holder);
        }
        let before = self.claim_holders.insert(node.clone(), residents.clone()).unwrap_or_default();
        for gone in before.difference(&residents) {
            self.engine.set_desired(gone, None);
        }
    }
}
