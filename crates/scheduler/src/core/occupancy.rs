//! What pods take of their nodes: amounts, and places in the engine's picture.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Core;
use super::picture::Want;
use super::pod::Place;

impl Core {
    /// Brings a pod's amounts on its node, and what it has in the picture, up to what is known.
    pub(super) fn refresh(&mut self, uid: &Arc<str>) {
        let Some(record) = self.pods.get(uid) else { return };
        let want = record.occupies().then(|| record.place.clone()).flatten();
        let node = want.as_ref().map(|place| Arc::clone(&place.node));
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
        if self.is_picture_old {
            return;
        }
        let want = want.and_then(|place| self.want(uid, &place));
        let had = self.picture.has(uid).map(|had| &had.workload);
        let is_freer = had
            .zip(want.as_ref())
            .is_some_and(|(had, want)| want.workload.may_be_disturbed_more_than(had));
        self.picture.set(uid, want);
        if is_freer {
            // Who was refused is told to say so of those who run: that it is said must be seen.
            self.something_changed();
        }
    }

    /// What a pod in its place ought to have in the picture.
    fn want(&mut self, uid: &Arc<str>, place: &Place) -> Option<Want> {
        let gpus = self.gpus_of(uid, place);
        let shape = self.shape_of_placed(uid, &gpus)?;
        let workload = self.workload_of(uid)?;
        Some(Want { workload, shape, node: Arc::clone(&place.node), gpus })
    }

    /// Who of a node holds its devices may be others now: a claim of one pod is of two, or the other way
    /// round. Nodes without devices in use are passed by.
    pub(super) fn holders_changed(&mut self, node: &Arc<str>) {
        if self.devices.held(node).is_empty() {
            self.refresh_claims(node);
        } else {
            self.refresh_node(node);
        }
    }

    /// Looks at all who hold something of a node's devices.
    pub(super) fn refresh_node(&mut self, node: &Arc<str>) {
        let uids: Vec<_> = self.on_node.get(node).into_iter().flatten().cloned().collect();
        let assumed = self.devices.held(node).into_iter().flat_map(|held| held.pods);
        let all: BTreeSet<_> = uids.into_iter().chain(assumed).collect();
        // What claims hold by themselves goes first and comes last, so that who takes it over finds it
        // free.
        self.refresh_claims(node);
        for uid in all {
            self.refresh(&uid);
        }
        self.refresh_claims(node);
    }
}
