//! Places that are kept for the successors of moved pods.

use std::sync::Arc;

use octavo_engine::{Placement, Shape};
use octavo_kube_io::objects::{NodeName, PodUid};

use super::Scheduler;
use super::engine_cache::{DesiredMember, Holder};
use super::pod::Place;
use super::queue::QueueKey;

/// A place that is kept for the successor of a moved pod.
#[derive(Clone, Debug)]
pub(super) struct SuccessorPlace {
    /// UID of the owner that creates the successor. Pods without an owner have none.
    owner: Arc<str>,
    shape: Arc<Shape>,
    place: Place,
    desired: DesiredMember,
    is_in_engine: bool,
    /// The entry for which the pod was moved.
    key: QueueKey,
    holder: Holder,
    until: u64,
}

impl SuccessorPlace {
    /// The place.
    pub(super) fn place(&self) -> Place {
        self.place.clone()
    }
}

impl Scheduler {
    /// Keeps a place for the successor of a pod that is moved.
    pub(super) fn hold_place_for_successor(
        &mut self,
        uid: &PodUid,
        to: &Placement,
        key: &QueueKey,
    ) {
        let Some(record) = self.pods.get(uid) else { return };
        let Some(owner) = record.pod.meta.owner.as_ref().map(|owner| Arc::clone(&owner.uid)) else {
            return;
        };
        let Some(cached) = self.engine.desired(uid).cloned() else { return };
        let node: NodeName = self.engine.world.cluster.name(to.node).into();
        let place = Place {
            node: node.clone(),
            gpus: to.gpus.clone(),
            state: super::pod::PlaceState::Nominated,
        };
        let holder: Holder = format!("successor:{uid}").into();
        let desired = DesiredMember { node, gpus: to.gpus.clone(), ..cached.clone() };
        let until = self.now.saturating_add(self.config.hold_seconds.saturating_mul(1000));
        self.successor_places.push(SuccessorPlace {
            owner,
            shape: cached.shape,
            place,
            desired,
            is_in_engine: false,
            key: key.clone(),
            holder,
            until,
        });
    }

    /// Adds new successor places to the engine cache, after the victims were removed from it.
    pub(super) fn show_new_successor_places(&mut self) {
        let mut successor_places = std::mem::take(&mut self.successor_places);
        for successor in &mut successor_places {
            if !std::mem::replace(&mut successor.is_in_engine, true) {
                self.engine.set_desired(&successor.holder, Some(successor.desired.clone()));
            }
        }
        self.successor_places = successor_places;
    }

    /// Takes the place that is kept for a pod, if there is one.
    pub(super) fn take_successor_place(
        &mut self,
        uid: &PodUid,
        shape: &Arc<Shape>,
    ) -> Option<SuccessorPlace> {
        let owner = self.pods.get(uid)?.pod.meta.owner.as_ref()?;
        let is_for = |successor: &SuccessorPlace| {
            successor.owner == owner.uid
                && (&successor.shape.resources, &successor.shape.gpus)
                    == (&shape.resources, &shape.gpus)
        };
        let index = self.successor_places.iter().position(is_for)?;
        let successor = self.successor_places.remove(index);
        self.engine.set_desired(&successor.holder, None);
        Some(successor)
    }

    /// Keeps a place again that could not be used yet.
    pub(super) fn restore_successor_place(&mut self, successor: SuccessorPlace) {
        self.engine.set_desired(&successor.holder, Some(successor.desired.clone()));
        self.successor_places.push(successor);
    }

    /// Adds successor places to a rebuilt engine cache.
    pub(super) fn show_successor_places(&mut self) {
        for successor in self.successor_places.iter().filter(|successor| successor.is_in_engine) {
            self.engine.set_desired(&successor.holder, Some(successor.desired.clone()));
        }
    }

    /// Drops the successor places of pods that need not move for this entry any more.
    pub(super) fn drop_successor_places_of(&mut self, key: &QueueKey) {
        let (dropped, remaining): (Vec<_>, Vec<_>) = std::mem::take(&mut self.successor_places)
            .into_iter()
            .partition(|successor| successor.key == *key);
        self.successor_places = remaining;
        for successor in dropped {
            self.release_successor_place(&successor);
        }
    }

    /// Drops expired successor places. Returns the next deadline.
    pub(super) fn drop_expired_successor_places(&mut self) -> Option<u64> {
        let now = self.now;
        let (old, remaining): (Vec<_>, Vec<_>) = std::mem::take(&mut self.successor_places)
            .into_iter()
            .partition(|successor| successor.until <= now);
        self.successor_places = remaining;
        for successor in &old {
            self.release_successor_place(successor);
        }
        self.successor_places.iter().map(|successor| successor.until).min()
    }

    fn release_successor_place(&mut self, successor: &SuccessorPlace) {
        self.engine.set_desired(&successor.holder, None);
        self.room_changed(&successor.desired.node);
    }
}
