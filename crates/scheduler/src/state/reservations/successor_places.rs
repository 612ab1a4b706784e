//! Places that are kept for the successors of moved pods.

use std::sync::Arc;

use octavo_engine::{Placement, Shape};
use octavo_kube_io::objects::{NodeName, PodUid};

use crate::state::Scheduler;
use crate::state::cache::engine_cache::{DesiredMember, Holder};
use crate::state::queue::QueueKey;

/// A place that is kept for the successor of a moved pod.
#[derive(Clone, Debug)]
pub(in crate::state) struct SuccessorPlace {
    /// UID of the owner that creates the successor. Pods without an owner have none.
    owner: Arc<str>,
    desired: DesiredMember,
    is_in_engine: bool,
    /// The entry for which the pod was moved.
    key: QueueKey,
    holder: Holder,
    until: u64,
}

impl SuccessorPlace {
    /// The place, as a member of the engine's world.
    pub(in crate::state) fn place(&self) -> &DesiredMember {
        &self.desired
    }
}

impl Scheduler {
    /// Keeps a place for the successor of a pod that is moved.
    pub(in crate::state) fn hold_place_for_successor(
        &mut self,
        uid: &PodUid,
        to: &Placement,
        key: &QueueKey,
    ) {
        let Some(record) = self.cache.pod(uid) else { return };
        let Some(owner) = record.pod.meta.owner.as_ref().map(|owner| Arc::clone(&owner.uid)) else {
            return;
        };
        let Some(cached) = self.cache.engine().desired(uid).cloned() else { return };
        let node: NodeName = self.cache.engine().world.cluster.name(to.node).into();
        let holder: Holder = format!("successor:{uid}").into();
        let desired = DesiredMember { node, gpus: to.gpus.clone(), ..cached };
        let until =
            self.cache.now().saturating_add(self.cache.config().hold_seconds.saturating_mul(1000));
        self.reservations.successors.push(SuccessorPlace {
            owner,
            desired,
            is_in_engine: false,
            key: key.clone(),
            holder,
            until,
        });
    }

    /// Adds new successor places to the engine cache, after the victims were removed from it.
    pub(in crate::state) fn show_new_successor_places(&mut self) {
        let mut successor_places = std::mem::take(&mut self.reservations.successors);
        for successor in &mut successor_places {
            if !std::mem::replace(&mut successor.is_in_engine, true) {
                self.cache.set_member(&successor.holder, Some(successor.desired.clone()));
            }
        }
        self.reservations.successors = successor_places;
    }

    /// Takes the place that is kept for a pod, if there is one.
    pub(in crate::state) fn take_successor_place(
        &mut self,
        uid: &PodUid,
        shape: &Arc<Shape>,
    ) -> Option<SuccessorPlace> {
        let owner = self.cache.pod(uid)?.pod.meta.owner.as_ref()?;
        let is_for = |successor: &SuccessorPlace| {
            successor.owner == owner.uid
                && (&successor.desired.shape.resources, &successor.desired.shape.gpus)
                    == (&shape.resources, &shape.gpus)
        };
        let index = self.reservations.successors.iter().position(is_for)?;
        let successor = self.reservations.successors.remove(index);
        self.cache.set_member(&successor.holder, None);
        Some(successor)
    }

    /// Keeps a place again that could not be used yet.
    pub(in crate::state) fn restore_successor_place(&mut self, successor: SuccessorPlace) {
        self.cache.set_member(&successor.holder, Some(successor.desired.clone()));
        self.reservations.successors.push(successor);
    }

    /// Adds successor places to a rebuilt engine cache.
    pub(in crate::state) fn show_successor_places(&mut self) {
        for successor in
            self.reservations.successors.iter().filter(|successor| successor.is_in_engine)
        {
            self.cache.set_member(&successor.holder, Some(successor.desired.clone()));
        }
    }

    /// Drops the successor places of pods that need not move for this entry any more.
    pub(in crate::state) fn drop_successor_places_of(&mut self, key: &QueueKey) {
        self.drop_successor_places(|successor| successor.key == *key);
    }

    /// Drops expired successor places. Returns the next deadline.
    pub(in crate::state) fn drop_expired_successor_places(&mut self) -> Option<u64> {
        let now = self.cache.now();
        self.drop_successor_places(|successor| successor.until <= now);
        self.reservations.successors.iter().map(|successor| successor.until).min()
    }

    fn drop_successor_places(&mut self, must_go: impl Fn(&SuccessorPlace) -> bool) {
        for SuccessorPlace { holder, desired, .. } in
            self.reservations.successors.extract_if(.., |successor| must_go(successor))
        {
            self.cache.set_member(&holder, None);
            self.cache.room_changed(&desired.node);
        }
    }
}
