//! Applies watch events to the state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::{Change, Claim, Delta, Node, NodeName, ObjectName, Pod};

use crate::devices::Invalidation;
use crate::predicates::{NodeFilterKey, Volumes};
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::pod::PodRecord;

impl Scheduler {
    /// Applies a watch event.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Pod(delta) => self.apply_pods(delta),
            Change::Node(delta) => self.apply_nodes(delta),
            Change::Slice(delta) => {
                let touched = self.cache.devices_mut().apply_slices(delta);
                self.apply_device_changes(&touched);
            }
            Change::Claim(delta) => {
                let frees = self.cache.frees_devices(delta);
                let touched = self.cache.devices_mut().apply_claims(delta);
                self.apply_device_changes(&touched);
                if frees && touched.is_shared_pool_touched {
                    self.cache.cluster_changed();
                } else if frees {
                    touched.holdings.iter().for_each(|node| self.cache.room_changed(node));
                }
            }
            Change::Class(delta) => {
                let touched = self.cache.devices_mut().apply_classes(delta);
                self.apply_device_changes(&touched);
            }
            Change::VolumeClaim(_)
            | Change::Volume(_)
            | Change::StorageClass(_)
            | Change::CsiNode(_)
            | Change::CsiDriver(_)
            | Change::CsiCapacity(_) => self.apply_storage(change),
            Change::Namespace(_) => {
                self.cache.apply_namespaces(change);
            }
            Change::Budget(delta) => {
                self.reporter.invalidate_hints();
                self.cache.apply_budgets(delta);
            }
            Change::Object(delta) => {
                self.reporter.invalidate_hints();
                let groups = self.cache.apply_groups(delta);
                self.groups_changed(&groups);
                let reports = self.cache.apply_policies(delta);
                self.reporter.report_all(reports);
                self.cache.apply_gpu_risks(delta);
                let changed = self.cache.apply_maintenances(delta);
                self.maintenances_changed(&changed);
            }
        }
    }

    fn apply_pods(&mut self, delta: &Delta<Pod>) {
        for uid in delta.gone(self.cache.pods().keys(), Pod::uid) {
            self.drop_pod(&uid);
        }
        // By age, so that a restart sees pods in the order of their creation.
        let mut pods: Vec<_> = delta.present().iter().collect();
        pods.sort_by_key(|pod| (pod.meta.created, &pod.meta.name));
        for pod in pods {
            self.upsert_observed_pod(pod);
        }
    }

    fn upsert_observed_pod(&mut self, pod: &Arc<Pod>) {
        let uid = &pod.meta.uid;
        // From now on its claims are deallocated, also those that are assumed whatever the watch
        // says.
        let has_ended = pod.has_ended() && pod.node.is_some();
        if has_ended
            && self.cache.devices().is_assumed(uid)
            && !self.operations.is_in_flight_for(uid)
        {
            self.cache.devices_mut().forget(uid);
        }
        self.set_pod(pod);
    }

    fn apply_nodes(&mut self, delta: &Delta<Node>) {
        for name in delta.gone(self.cache.nodes().keys(), Node::name) {
            self.drop_node(&name);
        }
        for node in delta.present() {
            self.set_node(node);
        }
    }

    /// Applies changes of volume claims, volumes, storage classes and what storage can hold. They may
    /// change what pods require of nodes.
    fn apply_storage(&mut self, change: &Change) {
        if self.cache.apply_storage(change) {
            let are_limits = matches!(change, Change::CsiNode(_));
            self.volumes_changed(are_limits);
        }
    }

    /// Computes again what pods with volume claims require of nodes, and wakes those that require
    /// something else. If limits of attached volumes have changed, all of them wake.
    pub(in crate::state) fn volumes_changed(&mut self, are_limits: bool) {
        let is_concerned = |record: &&PodRecord| {
            Volumes::uses_claims(&record.pod)
                && (record.is_pending_for(&self.cache.config().scheduler_name)
                    || record.is_nominated())
        };
        let has_changed = |record: &&PodRecord| {
            are_limits
                || record.node_mask.as_ref().is_some_and(|(_, rules, _)| {
                    *rules != NodeFilterKey::of(&record.pod, self.cache.volumes())
                })
        };
        let changed = self.cache.pods().values().filter(is_concerned).filter(has_changed);
        let uids: Vec<_> = changed.map(|record| record.pod.uid()).collect();
        if uids.is_empty() {
            return;
        }
        self.cache.requirements_changed();
        for uid in uids {
            self.forget_request(&uid);
        }
    }

    fn apply_device_changes(&mut self, touched: &Invalidation) {
        if touched.is_empty() {
            return;
        }
        let free_before: BTreeMap<NodeName, Option<i64>> = touched
            .holdings
            .iter()
            .map(|node| (node.clone(), self.cache.free_gpus(node)))
            .collect();
        if touched.are_models_changed {
            self.cache.models_changed();
        }
        if touched.are_classes_changed {
            self.forget_all_requests();
        }
        for node in &touched.hardware {
            self.cache.sync_node(node);
        }
        for node in touched.hardware.union(&touched.holdings) {
            self.refresh_node(node);
        }
        self.wake_claim_users(&touched.claims);
        self.retry_nominations();
        if touched.are_classes_changed {
            self.cache.cluster_changed();
        }
        if !touched.hardware.is_empty() {
            self.cache.devices_changed();
        }
        touched.hardware.iter().for_each(|node| self.cache.room_changed(node));
        // A new allocation makes no entry schedulable.
        for node in &touched.holdings {
            let before = free_before.get(node).copied().flatten();
            if self.cache.is_engine_stale() || self.cache.free_gpus(node) > before {
                self.cache.room_changed(node);
            }
        }
    }

    /// Wakes pods that use these claims.
    fn wake_claim_users(&mut self, claims: &BTreeSet<ObjectName>) {
        for uid in self.cache.pods_using(claims) {
            self.wake(&uid);
        }
    }
}

impl Cache {
    /// Whether a change of claims frees devices, including devices that the engine does not model.
    fn frees_devices(&self, delta: &Delta<Claim>) -> bool {
        let name = |claim: &Claim| claim.meta.name.clone();
        let had = |name: &ObjectName| {
            self.devices().claim(name).is_some_and(|old| old.claim.allocation.is_some())
        };
        let mut free = delta.present().iter().filter(|claim| claim.claim.allocation.is_none());
        free.any(|claim| had(&claim.meta.name))
            || delta.gone(self.devices().allocated(), name).iter().any(had)
    }

    /// Free GPU compute of a node in thousandths of GPUs, plus the number of unused GPUs.
    fn free_gpus(&self, node: &str) -> Option<i64> {
        let gpus = self.engine().world.cluster.gpus(self.engine().node(node)?);
        let free = gpus.iter().map(|gpu| i64::from(gpu.milli) + i64::from(gpu.is_unused()));
        Some(free.sum())
    }
}
