//! Places that are kept for successors: of moved pods, and of members of gangs that restart
//! ([`super::member_places`]).

use std::sync::Arc;

use octavo_engine::{Placement, Shape};
use octavo_kube_io::objects::{NodeName, PodUid};

use crate::groups::Member;
use crate::state::Scheduler;
use crate::state::cache::engine_cache::{DesiredMember, Holder};
use crate::state::queue::QueueKey;

/// A place that is kept for a pod that does not exist yet.
#[derive(Clone, Debug)]
pub(in crate::state) struct SuccessorPlace {
    pub(super) successor: Successor,
    pub(super) desired: DesiredMember,
    pub(super) is_in_engine: bool,
    pub(super) holder: Holder,
    /// When it is dropped, in milliseconds.
    pub(super) until: u64,
}

/// Which pod gets a kept place.
#[derive(Clone, Debug)]
pub(super) enum Successor {
    /// After a move: the first pod of the owner with this UID, if the request is the same. Pods
    /// without an owner have no successor. `key` is the entry for which the pod was moved.
    OfMoved { owner: Arc<str>, key: QueueKey },
    /// The next pod with the same part in a gang.
    OfMember {
        member: Member,
        predecessor: PodUid,
        /// Whether a GPU of the place was fenced when the predecessor left. Its node is only a hint then.
        was_fenced: bool,
    },
}

impl SuccessorPlace {
    /// The place, as a member of the engine's world.
    pub(in crate::state) fn place(&self) -> &DesiredMember {
        &self.desired
    }

    /// Whether it was the place of a pod with this request.
    pub(super) fn is_request(&self, shape: &Shape) -> bool {
        (&self.desired.shape.resources, &self.desired.shape.gpus) == (&shape.resources, &shape.gpus)
    }

    /// Whether a GPU of the place was fenced when a member left it.
    pub(super) fn was_fenced(&self) -> bool {
        matches!(self.successor, Successor::OfMember { was_fenced: true, .. })
    }

    /// Notes that a GPU of the place is fenced.
    pub(super) fn note_fence(&mut self, is_fenced: bool) {
        if let Successor::OfMember { was_fenced, .. } = &mut self.successor {
            *was_fenced |= is_fenced;
        }
    }

    /// The part in a gang that the successor has.
    pub(super) fn member(&self) -> Option<&Member> {
        match &self.successor {
            Successor::OfMember { member, .. } => Some(member),
            Successor::OfMoved { .. } => None,
        }
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
            successor: Successor::OfMoved { owner, key: key.clone() },
            desired,
            is_in_engine: false,
            holder,
            until,
        });
    }

    /// Adds new successor places to the engine cache: those of moved pods after the victims were
    /// removed from it, those of members once their predecessors have left. Their gangs are awake then.
    pub(in crate::state) fn show_new_successor_places(&mut self) {
        let mut successor_places = std::mem::take(&mut self.reservations.successors);
        for place in successor_places.iter_mut().filter(|place| !place.is_in_engine) {
            let group = place.member().map(|member| member.group.clone());
            let is_hint = place.was_fenced() || !self.cache.has_room_for(&place.desired);
            if group.is_some() && is_hint {
                continue;
            }
            place.is_in_engine = true;
            self.cache.set_member(&place.holder, Some(place.desired.clone()));
            if let Some(group) = group {
                self.wake_group(&group);
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
        let is_for = |place: &SuccessorPlace| match &place.successor {
            Successor::OfMoved { owner: of, .. } => *of == owner.uid && place.is_request(shape),
            Successor::OfMember { .. } => false,
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

    /// Adds successor places to a rebuilt engine cache. Those of members follow with
    /// [`Self::show_new_successor_places`], if their GPUs are still the same.
    pub(in crate::state) fn show_successor_places(&mut self) {
        for place in &mut self.reservations.successors {
            if place.member().is_some() {
                place.is_in_engine = false;
            } else if place.is_in_engine {
                self.cache.set_member(&place.holder, Some(place.desired.clone()));
            }
        }
    }

    /// Drops the successor places of pods that need not move for this entry any more.
    pub(in crate::state) fn drop_successor_places_of(&mut self, key: &QueueKey) {
        self.drop_successor_places(|place| match &place.successor {
            Successor::OfMoved { key: of, .. } => of == key,
            Successor::OfMember { .. } => false,
        });
    }

    /// Drops expired successor places. Returns the next deadline.
    pub(in crate::state) fn drop_expired_successor_places(&mut self) -> Option<u64> {
        let now = self.cache.now();
        self.reservations.restarts.retain(|_, until| *until > now);
        self.cache.forget_full_runs(|_| false);
        self.drop_successor_places(|place| place.until <= now);
        self.reservations.successors.iter().map(|place| place.until).min()
    }

    pub(super) fn drop_successor_places(&mut self, must_go: impl Fn(&SuccessorPlace) -> bool) {
        let places = self.reservations.successors.extract_if(.., |place| must_go(place));
        for place in places.collect::<Vec<_>>() {
            self.cache.set_member(&place.holder, None);
            self.cache.room_changed(&place.desired.node);
            if let Some(member) = place.member() {
                // It may have waited for the place.
                self.wake_group(&member.group);
            }
        }
    }
}
