//! Changes of the cluster, taken in.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_kube_io::objects::{Change, Claim, Delta, Node, ObjectName, Pod, WatchedObject};

use super::Core;
use crate::devices::Touched;
use crate::policies::Policies;

impl Core {
    /// Takes in a change.
    pub fn apply(&mut self, change: &Change) {
        match change {
            Change::Pod(delta) => self.apply_pods(delta),
            Change::Node(delta) => self.apply_nodes(delta),
            Change::Slice(delta) => {
                let touched = self.devices.apply_slices(delta);
                self.devices_touched(&touched);
            }
            Change::Claim(delta) => {
                let frees = self.frees_devices(delta);
                let touched = self.devices.apply_claims(delta);
                self.keep_doubtful();
                self.devices_touched(&touched);
                if frees {
                    self.something_changed();
                }
            }
            Change::Class(delta) => {
                let touched = self.devices.apply_classes(delta);
                self.devices_touched(&touched);
            }
            Change::VolumeClaim(_)
            | Change::Volume(_)
            | Change::StorageClass(_)
            | Change::CsiNode(_) => self.apply_storage(change),
            Change::Namespace(_) => {
                if self.neighbours.apply(change) {
                    self.something_changed();
                }
            }
            Change::Budget(delta) => {
                self.remedies.forget_found();
                self.apply_budgets(delta);
            }
            Change::Object(delta) => {
                self.remedies.forget_found();
                let groups = self.groups.apply(delta);
                self.groups_changed(&groups);
                let before = is_policy(delta).then(|| self.policies.clone());
                let reports = self.policies.apply(delta);
                self.reports.extend(reports);
                if before.is_some_and(|before| before != self.policies) {
                    self.something_changed();
                }
            }
        }
    }

    fn apply_pods(&mut self, delta: &Delta<Pod>) {
        match delta {
            Delta::Upsert(pod) => self.set_known_pod(pod),
            Delta::Delete(pod) => self.drop_known_pod(&pod.meta.uid),
            Delta::Replace(_, pods) => {
                let there: BTreeSet<&Arc<str>> = pods.iter().map(|pod| &pod.meta.uid).collect();
                let gone = self.pods.keys().filter(|uid| !there.contains(uid));
                for uid in gone.cloned().collect::<Vec<_>>() {
                    self.drop_known_pod(&uid);
                }
                // In the order in which they came, so that a restart finds them as they were.
                let mut pods: Vec<_> = pods.iter().collect();
                pods.sort_by_key(|pod| (pod.meta.created, &pod.meta.name));
                for pod in pods {
                    self.set_known_pod(pod);
                }
            }
        }
    }

    fn set_known_pod(&mut self, pod: &Arc<Pod>) {
        let uid = &pod.meta.uid;
        // Its claims are taken from it from now on, also those that are held whatever is seen of them.
        let has_ended = pod.has_ended() && pod.node.is_some();
        if has_ended
            && self.devices.is_assumed(uid)
            && self.flying.values().all(|flight| flight.pod != *uid)
        {
            self.devices.forget(uid);
        }
        self.set_pod(pod);
    }

    fn drop_known_pod(&mut self, uid: &Arc<str>) {
        self.drop_pod(uid);
        self.devices.pod_gone(uid);
    }

    fn apply_nodes(&mut self, delta: &Delta<Node>) {
        match delta {
            Delta::Upsert(node) => self.set_node(node),
            Delta::Delete(node) => self.drop_node(&node.meta.name.name),
            Delta::Replace(_, nodes) => {
                let there: BTreeSet<&Arc<str>> =
                    nodes.iter().map(|node| &node.meta.name.name).collect();
                let gone = self.nodes.keys().filter(|name| !there.contains(name));
                for name in gone.cloned().collect::<Vec<_>>() {
                    self.drop_node(&name);
                }
                for node in nodes {
                    self.set_node(node);
                }
            }
        }
    }

    /// Claims of volumes, volumes, classes and limits: what pods ask of nodes may be another now.
    fn apply_storage(&mut self, change: &Change) {
        if !self.volumes.apply(change) {
            return;
        }
        let with_volumes = self.pods.values().filter(|record| {
            crate::predicates::Volumes::concern(&record.pod)
                && record.waits_for(&self.config.scheduler_name)
        });
        let uids: Vec<_> = with_volumes.map(|record| Arc::clone(&record.pod.meta.uid)).collect();
        if uids.is_empty() {
            return;
        }
        for uid in uids {
            self.forget_wish(&uid);
        }
        self.something_changed();
    }

    fn devices_touched(&mut self, touched: &Touched) {
        if touched.is_empty() {
            return;
        }
        let free_before = self.free_gpus();
        let is_more = touched.are_classes_changed
            || touched.is_shared_pool_touched
            || !touched.hardware.is_empty();
        if touched.are_models_changed {
            self.is_picture_old = true;
        }
        if touched.are_classes_changed {
            self.forget_all_wishes();
        }
        for node in &touched.hardware {
            self.look_at_node(node);
        }
        for node in &touched.holdings {
            self.refresh_node(node);
        }
        self.claims_touched(&touched.claims);
        self.try_promises();
        // What was allocated for somebody turns no refusal into a place.
        if is_more || self.is_picture_old || self.free_gpus() > free_before {
            self.something_changed();
        }
    }

    /// Whether devices are free by a change of claims, those too that the engine does not know.
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

    /// GPUs that nobody has anything of, and compute that is free, in thousandths.
    fn free_gpus(&self) -> i64 {
        let totals = self.picture.world.cluster.totals();
        totals.gpu_milli - totals.used_milli + totals.unused_gpus
    }

    /// Pods that wait for claims of these names can be decided on.
    fn claims_touched(&mut self, claims: &BTreeSet<ObjectName>) {
        for uid in self.pods_waiting_for(claims) {
            self.wake(&uid);
        }
    }
}

/// Whether a change is of a placement policy.
fn is_policy(delta: &Delta<WatchedObject>) -> bool {
    let kind = Policies::kind();
    match delta {
        Delta::Upsert(object) | Delta::Delete(object) => object.kind == kind.kind,
        Delta::Replace(of, _) => of.kind == kind.kind,
    }
}
