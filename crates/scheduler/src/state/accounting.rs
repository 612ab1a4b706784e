//! What pods take of their nodes: amounts, and places in the engine's picture.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Scheduler;
use super::engine_cache::DesiredMember;
use super::pod::Place;

impl Scheduler {
    /// Brings a pod's amounts on its node, and what it has in the picture, up to what is known.
    pub(super) fn refresh_pod(&mut self, uid: &Arc<str>) {
        let Some(record) = self.pods.get(uid) else { return };
        let desired = record.occupies().then(|| record.place.clone()).flatten();
        let node = desired.as_ref().map(|place| Arc::clone(&place.node));
        if record.counted != node {
            let (footprint, pod) = (Arc::clone(&record.footprint), Arc::clone(&record.pod));
            if let Some(old) = &record.counted.clone() {
                if let Some(old) = self.nodes.get_mut(old) {
                    old.usage.remove(&footprint);
                }
                self.neighbours.remove(uid);
            }
            let mut counted = None;
            if let Some(node) = &node
                && let Some(new) = self.nodes.get_mut(node)
            {
                new.usage.add(&footprint);
                self.neighbours.add(&pod, node);
                counted = Some(Arc::clone(node));
            }
            if let Some(record) = self.pods.get_mut(uid) {
                record.counted = counted;
            }
        }
        if self.is_engine_stale {
            return;
        }
        let desired = desired.and_then(|place| self.desired_member(uid, &place));
        let before = self.engine.desired(uid).map(|before| &before.workload);
        let is_more_disruptable = before
            .zip(desired.as_ref())
            .is_some_and(|(before, desired)| desired.workload.is_more_disruptable_than(before));
        self.engine.set_desired(uid, desired);
        if is_more_disruptable {
            // Who was refused is told to say so of those who run: that it is said must be seen.
            self.cluster_changed();
        }
    }

    /// What a pod in its place ought to have in the picture.
    fn desired_member(&mut self, uid: &Arc<str>, place: &Place) -> Option<DesiredMember> {
        let gpus = self.gpus_of(uid, place);
        let shape = self.shape_of_placed(uid, &gpus)?;
        let workload = self.workload_of(uid)?;
        Some(DesiredMember { workload, shape, node: Arc::clone(&place.node), gpus })
    }

    /// Who of a node holds its devices may be others now: a claim of one pod is of two, or the other way
    /// round. Nodes without devices in use are passed by.
    pub(super) fn holders_changed(&mut self, node: &Arc<str>) {
        if self.devices.held(node).is_empty() {
            self.refresh_claim_holders(node);
        } else {
            self.refresh_node(node);
        }
    }

    /// Looks at all who hold something of a node's devices.
    pub(super) fn refresh_node(&mut self, node: &Arc<str>) {
        let uids: Vec<_> = self.on_node.get(node).into_iter().flatten().cloned().collect();
        let claim_users = self.devices.held(node).into_iter().flat_map(|held| held.pods);
        let all: BTreeSet<_> = uids.into_iter().chain(claim_users).collect();
        // What claims hold by themselves goes first and comes last, so that who takes it over finds it
        // free.
        self.refresh_claim_holders(node);
        for uid in all {
            self.refresh_pod(&uid);
        }
        self.refresh_claim_holders(node);
    }
}
