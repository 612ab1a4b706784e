//! Accounting: the resources that pods use on their nodes, and their members in the engine cache.

use octavo_kube_io::objects::PodUid;

use super::Cache;
use super::engine_cache::DesiredMember;
use super::pod::{Place, PodRecord};

impl Cache {
    /// Updates the usage of a pod's node and the pod's member in the engine cache.
    pub(in crate::state) fn refresh_pod(&mut self, uid: &PodUid) {
        let is_terminating = |record: &PodRecord| record.pod.meta.deleted.is_some();
        if self.recount_pod(uid) && !self.pods.get(uid).is_some_and(is_terminating) {
            // An unschedulable pod's hint may advise to make running pods preemptible or movable.
            // Such a change must requeue the pod. A terminating pod does so when it has gone.
            self.victims_changed();
        }
    }

    /// Does so without a note that there may be more victims. Returns whether there may be.
    pub(super) fn recount_pod(&mut self, uid: &PodUid) -> bool {
        let Some(record) = self.pods.get(uid) else { return false };
        let place = record.place.clone().filter(|_| record.occupies());
        let node = place.as_ref().map(|place| place.node.clone());
        if record.counted_on != node {
            if let Some(old) = &record.counted_on
                && let Some(old) = self.nodes.get_mut(old)
            {
                old.usage.remove(&record.footprint);
            }
            let counted_on = node.filter(|node| {
                let node = self.nodes.get_mut(node);
                node.map(|node| node.usage.add(&record.footprint)).is_some()
            });
            if let Some(record) = self.pods.get_mut(uid) {
                record.counted_on = counted_on;
            }
        }
        self.refresh_neighbour(uid);
        if self.is_engine_stale {
            return false;
        }
        let desired = place.and_then(|place| self.desired_member(uid, &place));
        let before = self.engine.desired(uid);
        let is_more_disruptable = before
            .zip(desired.as_ref())
            .is_some_and(|(before, desired)| desired.is_more_disruptable_than(before));
        self.engine.set_desired(uid.as_arc(), desired);
        is_more_disruptable
    }

    /// Updates the pod as the rules of others see it. A victim keeps others away until it has left.
    fn refresh_neighbour(&mut self, uid: &PodUid) {
        let Some(record) = self.pods.get_mut(uid) else { return };
        let node = record.place.as_ref().filter(|_| record.is_present()).map(|place| &place.node);
        let node = node.filter(|node| self.nodes.contains_key(*node)).cloned();
        let has_changed = std::mem::take(&mut record.has_neighbour_changed);
        if record.neighbour_on == node && !(has_changed && node.is_some()) {
            return;
        }
        match &node {
            Some(node) => self.neighbours.add(&record.pod, node),
            None => self.neighbours.remove(uid),
        }
        record.neighbour_on = node;
    }

    /// The member that a placed pod should have in the engine cache.
    fn desired_member(&mut self, uid: &PodUid, place: &Place) -> Option<DesiredMember> {
        let gpus = self.gpus_of(uid, place);
        let shape = self.shape_of_placed(uid, &gpus)?;
        let workload = self.workload_of(uid)?;
        let budget = self.budget_name_of(self.pods.get(uid)?);
        Some(DesiredMember { workload, shape, node: place.node.clone(), gpus, budget })
    }
}
