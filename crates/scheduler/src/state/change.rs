//! Applies watch events to the state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::{
    Change, Claim, Delta, Node, NodeName, ObjectName, Pod, PodUid, WatchedObject,
};

use super::Scheduler;
use super::pod::PodRecord;
use crate::devices::Invalidation;
use crate::policies::Policies;
use crate::predicates::{NodeFilterKey, Volumes};

impl Scheduler {
    /// Applies a watch event.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Pod(delta) => self.apply_pods(delta),
            Change::Node(delta) => self.apply_nodes(delta),
            Change::Slice(delta) => {
                let touched = self.devices.apply_slices(delta);
                self.apply_device_changes(&touched);
            }
            Change::Claim(delta) => {
                let frees = self.frees_devices(delta);
                let touched = self.devices.apply_claims(delta);
                self.reassume_indeterminate();
                self.apply_device_changes(&touched);
                if frees && touched.is_shared_pool_touched {
                    self.cluster_changed();
                } else if frees {
                    touched.holdings.iter().for_each(|node| self.room_changed(node));
                }
            }
            Change::Class(delta) => {
                let touched = self.devices.apply_classes(delta);
                self.apply_device_changes(&touched);
            }
            Change::VolumeClaim(_)
            | Change::Volume(_)
            | Change::StorageClass(_)
            | Change::CsiNode(_)
            | Change::CsiDriver(_)
            | Change::CsiCapacity(_) => self.apply_storage(change),
            Change::Namespace(_) => {
                if self.neighbours.apply(change) {
                    self.cluster_changed();
                }
            }
            Change::Budget(delta) => {
                self.hints.invalidate();
                self.apply_budgets(delta);
            }
            Change::Object(delta) => {
                self.hints.invalidate();
                let groups = self.groups.apply(delta);
                self.groups_changed(&groups);
                let before = is_policy(delta).then(|| self.policies.clone());
                let reports = self.policies.apply(delta);
                self.reports.extend(reports);
                if before.is_some_and(|before| before != self.policies) {
                    self.are_policies_checked = false;
                    self.cluster_changed();
                }
            }
        }
    }

    fn apply_pods(&mut self, delta: &Delta<Pod>) {
        match delta {
            Delta::Upsert(pod) => self.upsert_observed_pod(pod),
            Delta::Delete(pod) => self.delete_observed_pod(&pod.uid()),
            Delta::Replace(_, pods) => {
                let listed: BTreeSet<&str> = pods.iter().map(|pod| &*pod.meta.uid).collect();
                let gone = self.pods.keys().filter(|uid| !listed.contains::<str>(uid));
                for uid in gone.cloned().collect::<Vec<_>>() {
                    self.delete_observed_pod(&uid);
                }
                // By age, so that a restart sees pods in the order of their creation.
                let mut pods: Vec<_> = pods.iter().collect();
                pods.sort_by_key(|pod| (pod.meta.created, &pod.meta.name));
                for pod in pods {
                    self.upsert_observed_pod(pod);
                }
            }
        }
    }

    fn upsert_observed_pod(&mut self, pod: &Arc<Pod>) {
        let uid = &pod.meta.uid;
        // From now on its claims are deallocated, also those that are assumed whatever the watch
        // says.
        let has_ended = pod.has_ended() && pod.node.is_some();
        if has_ended
            && self.devices.is_assumed(uid)
            && self.in_flight.values().all(|op| *op.pod != **uid)
        {
            self.devices.forget(uid);
        }
        self.set_pod(pod);
    }

    fn delete_observed_pod(&mut self, uid: &PodUid) {
        self.drop_pod(uid);
        self.devices.pod_gone(uid);
    }

    fn apply_nodes(&mut self, delta: &Delta<Node>) {
        match delta {
            Delta::Upsert(node) => self.set_node(node),
            Delta::Delete(node) => self.drop_node(&node.name()),
            Delta::Replace(_, nodes) => {
                let listed: BTreeSet<&str> =
                    nodes.iter().map(|node| &*node.meta.name.name).collect();
                let gone = self.nodes.keys().filter(|name| !listed.contains::<str>(name));
                for name in gone.cloned().collect::<Vec<_>>() {
                    self.drop_node(&name);
                }
                for node in nodes {
                    self.set_node(node);
                }
            }
        }
    }

    /// Applies changes of volume claims, volumes, storage classes and what storage can hold. They may
    /// change what pods require of nodes.
    fn apply_storage(&mut self, change: &Change) {
        if self.volumes.apply(change) {
            let are_limits = matches!(change, Change::CsiNode(_));
            self.volumes_changed(are_limits);
        }
    }

    /// Computes again what pods with volume claims require of nodes, and wakes those that require
    /// something else. If limits of attached volumes have changed, all of them wake.
    pub(super) fn volumes_changed(&mut self, are_limits: bool) {
        let is_concerned = |record: &&PodRecord| {
            Volumes::uses_claims(&record.pod)
                && (record.is_pending_for(&self.config.scheduler_name) || record.is_nominated())
        };
        let has_changed = |record: &&PodRecord| {
            are_limits
                || record.node_mask.as_ref().is_some_and(|(_, rules, _)| {
                    *rules != NodeFilterKey::of(&record.pod, &self.volumes)
                })
        };
        let changed = self.pods.values().filter(is_concerned).filter(has_changed);
        let uids: Vec<_> = changed.map(|record| record.pod.uid()).collect();
        if uids.is_empty() {
            return;
        }
        self.cluster_revision += 1;
        for uid in uids {
            self.forget_wish(&uid);
        }
    }

    fn apply_device_changes(&mut self, touched: &Invalidation) {
        if touched.is_empty() {
            return;
        }
        let free_before: BTreeMap<NodeName, Option<i64>> =
            touched.holdings.iter().map(|node| (node.clone(), self.free_gpus(node))).collect();
        if touched.are_models_changed {
            self.is_engine_stale = true;
            self.cluster_changed();
        }
        if touched.are_classes_changed {
            self.forget_all_wishes();
        }
        for node in &touched.hardware {
            self.sync_node(node);
        }
        for node in &touched.holdings {
            self.refresh_node(node);
        }
        self.wake_claim_users(&touched.claims);
        self.retry_nominations();
        if touched.are_classes_changed {
            self.cluster_changed();
        }
        if !touched.hardware.is_empty() {
            self.devices_changed();
        }
        touched.hardware.iter().for_each(|node| self.room_changed(node));
        // A new allocation makes no entry schedulable.
        for node in &touched.holdings {
            let before = free_before.get(node).copied().flatten();
            if self.is_engine_stale || self.free_gpus(node) > before {
                self.room_changed(node);
            }
        }
    }

    /// Whether a change of claims frees devices, including devices that the engine does not model.
    fn frees_devices(&self, delta: &Delta<Claim>) -> bool {
        let had = |claim: &Claim| {
            let old = self.devices.claim(&claim.meta.name);
            old.is_some_and(|old| old.claim.allocation.is_some())
        };
        match delta {
            Delta::Upsert(claim) => claim.claim.allocation.is_none() && had(claim),
            Delta::Delete(claim) => had(claim),
            Delta::Replace(_, claims) => {
                let holding = claims.iter().filter(|claim| claim.claim.allocation.is_some());
                let holding: BTreeSet<&ObjectName> =
                    holding.map(|claim| &claim.meta.name).collect();
                self.devices.allocated().any(|name| !holding.contains(name))
            }
        }
    }

    /// Free GPU compute of a node in thousandths of GPUs, plus the number of unused GPUs.
    fn free_gpus(&self, node: &str) -> Option<i64> {
        let gpus = self.engine.world.cluster.gpus(self.engine.node(node)?);
        let free = gpus.iter().map(|gpu| i64::from(gpu.milli) + i64::from(gpu.is_unused()));
        Some(free.sum())
    }

    /// Wakes pods that use these claims.
    fn wake_claim_users(&mut self, claims: &BTreeSet<ObjectName>) {
        for uid in self.pods_using(claims) {
            self.wake(&uid);
        }
    }
}

/// Whether a change concerns a placement policy.
fn is_policy(delta: &Delta<WatchedObject>) -> bool {
    let kind = Policies::kind();
    match delta {
        Delta::Upsert(object) | Delta::Delete(object) => object.kind == kind.kind,
        Delta::Replace(of, _) => of.kind == kind.kind,
    }
}
