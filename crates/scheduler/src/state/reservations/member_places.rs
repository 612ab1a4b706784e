//! Places that are kept for the next members of a gang that restarts after a fault.
//!
//! A fault is a member that fails, or that leaves a fenced GPU or a lost node. Many frameworks then
//! delete all pods of the job and create them again. So the places of members that leave from then
//! on are kept, for the next pods with the same part in the gang. A member whose GPU is fenced gets
//! another GPU of its node, if one is free. The engine finds the other places, near the members
//! that have theirs. That holds even if the GPU has returned meanwhile: it failed a moment ago.
//!
//! A gang that is deleted without a fault keeps nothing: others may have its room at once.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use octavo_engine::Placement;
use octavo_engine::pick::default_placement;
use octavo_engine::workload::{Coupling, Profile};
use octavo_kube_io::objects::{NodeName, Phase, PodUid};

use super::successor_places::{Successor, SuccessorPlace};
use crate::bind::PodRef;
use crate::devices::HeldDevices;
use crate::groups::{GroupName, GroupSpec, MemberState};
use crate::state::cache::Cache;
use crate::state::cache::engine_cache::{DesiredMember, DesiredWorkload, Holder};
use crate::state::cache::pod::{PlaceState, PodRecord};
use crate::state::cycle::reserve::{AssumedPlacement, ReserveError};
use crate::state::reporter::pending_reason::{NodeError, PendingReason, Reason};
use crate::state::{Scheduler, SchedulerConfig};
use crate::status::{StatusText, StatusUpdate};

impl Scheduler {
    /// Keeps the place of a member that leaves by a fault, or while its gang restarts after one. The
    /// time counts from the call, and from the end of the grace period until the member has left.
    pub(in crate::state) fn keep_member_place(&mut self, uid: &PodUid, has_left: bool) {
        let hold = self.cache.config().hold_seconds.saturating_mul(1000);
        let Some(record) = self.cache.pod(uid).filter(|_| hold > 0) else { return };
        let Some(member) = record.member.clone() else { return };
        let is_bound = record.place.as_ref().is_some_and(|place| place.state == PlaceState::Bound);
        // The place of a victim is another's.
        if !is_bound || record.is_leaving || MemberState::of(&record.pod) == MemberState::Done {
            return;
        }
        let now = self.cache.now();
        let restarts = |until: &u64| now < *until;
        let restarts = self.reservations.restarts.get(&member.group).is_some_and(restarts);
        if !restarts && !self.cache.leaves_by_fault(uid, record) {
            return;
        }
        let grace = u64::try_from(record.pod.spec.grace_seconds).unwrap_or(0).saturating_mul(1000);
        let until = now.saturating_add(hold).saturating_add(if has_left { 0 } else { grace });
        let desired = self.cache.kept_member(uid, record);
        let holder: Holder = format!("successor:{uid}").into();
        let group = member.group.clone();
        let pod = record.reference();
        let was_fenced = desired.as_ref().is_some_and(|desired| {
            let DesiredMember { node, .. } = desired;
            self.cache.has_fenced_gpu(node, desired)
        });
        let known = self.reservations.successors.iter_mut().find(|place| place.holder == holder);
        if let Some(place) = known {
            place.until = until;
            place.note_fence(was_fenced);
        } else if let Some(desired) = desired {
            let spec = Arc::clone(&member.spec);
            if !restarts && self.cache.count_fault_of(uid) {
                self.note_fault(pod, &group, &spec);
            }
            if !self.cache.has_too_many_faults(&group, &spec) {
                self.reservations.successors.push(SuccessorPlace {
                    successor: Successor::OfMember { member, predecessor: uid.clone(), was_fenced },
                    desired,
                    is_in_engine: false,
                    holder,
                    until,
                });
            }
        } else {
            return;
        }
        self.reservations.restarts.insert(group, now.saturating_add(hold));
    }

    /// Counts a fault of a gang, by which this pod leaves. The first one too many has an event.
    fn note_fault(&mut self, pod: PodRef, group: &GroupName, spec: &GroupSpec) {
        if !self.cache.note_fault(group, spec) {
            return;
        }
        let SchedulerConfig { max_repairs, repair_window_seconds, .. } = self.cache.config();
        let message = format!(
            "its gang {group} was repaired {max_repairs} times within {repair_window_seconds} s: it gets its \
             next places as a new gang does, without spare nodes"
        );
        let status_text = StatusText { reason: Reason::TooManyRepairs.as_str(), message };
        self.reporter.report(StatusUpdate::PodNotRepaired { pod, status_text });
    }

    /// Ends the restarts of gangs, and drops the places that are kept for their members.
    pub(in crate::state) fn forget_restarts(&mut self, is_over: impl Fn(&GroupName) -> bool) {
        self.reservations.restarts.retain(|group, _| !is_over(group));
        self.drop_successor_places(|place| {
            place.member().is_some_and(|member| is_over(&member.group))
        });
    }

    /// Takes the places that are kept for members of a gang, so that a decision on it may use them.
    pub(in crate::state) fn take_member_places(
        &mut self,
        group: &GroupName,
    ) -> Vec<SuccessorPlace> {
        let is_of = |place: &mut SuccessorPlace| {
            place.member().is_some_and(|member| member.group == *group)
        };
        let mut places: Vec<_> = self.reservations.successors.extract_if(.., is_of).collect();
        for place in &mut places {
            if std::mem::take(&mut place.is_in_engine) {
                self.cache.set_member(&place.holder, None);
            }
        }
        places
    }

    /// Reserves kept places for their successors, as far as they are to be had. First come those that
    /// are as they were, then other GPUs of the same nodes. Fails if a place is about to be free.
    pub(in crate::state) fn reserve_member_places(
        &mut self,
        places: &[SuccessorPlace],
        successors: &BTreeMap<usize, PodUid>,
    ) -> Result<Vec<AssumedPlacement>, PendingReason> {
        let mut assumed = Vec::new();
        let outcome = self.reserve_kept(places, successors, &mut assumed);
        if outcome.is_err() {
            self.unreserve_all(&mut assumed);
        }
        outcome.map(|()| assumed)
    }

    fn reserve_kept(
        &mut self,
        places: &[SuccessorPlace],
        successors: &BTreeMap<usize, PodUid>,
        assumed: &mut Vec<AssumedPlacement>,
    ) -> Result<(), PendingReason> {
        let mut elsewhere = Vec::new();
        for (number, uid) in successors {
            let Some(place) = places.get(*number) else { continue };
            let ask = self.ask(uid)?;
            let (shape, _) = self.shape_of_waiting(uid, &ask).ok_or(PendingReason::Gone)?;
            let DesiredMember { node, gpus, .. } = &place.desired;
            let Some(id) = self.cache.engine().node(node) else { continue };
            if !place.is_request(&shape) || self.cache.check_node_rules(uid, node).is_err() {
                continue;
            }
            if place.was_fenced() {
                elsewhere.push((uid, id, shape));
            } else if self.cache.has_room_for(&place.desired) {
                match self.reserve_one(uid, &Placement { node: id, gpus: gpus.clone() }) {
                    Ok(placement) => assumed.push(placement),
                    Err(ReserveError::Leaving(message)) => return Err(waits(node, message)),
                    Err(_) => {}
                }
            } else if self.cache.is_about_to_be_free(place) {
                let message = "its gang's former pod there has not left yet".to_owned();
                return Err(waits(node, message));
            } else {
                elsewhere.push((uid, id, shape));
            }
        }
        for (uid, id, shape) in elsewhere {
            let cluster = &self.cache.engine().world.cluster;
            if let Some(placement) = default_placement(cluster, id, &shape)
                && let Ok(placement) = self.reserve_one(uid, &placement)
            {
                assumed.push(placement);
            }
        }
        Ok(())
    }

    /// Keeps taken places again: all of them after a refusal, and after a decision those whose
    /// successors do not exist yet. `moved` tells whether the decision gave all members other places;
    /// `None` is a refusal.
    pub(in crate::state) fn restore_member_places(
        &mut self,
        places: Vec<SuccessorPlace>,
        successors: &BTreeMap<usize, PodUid>,
        moved: Option<bool>,
    ) {
        for (number, mut place) in places.into_iter().enumerate() {
            let is_kept = match moved {
                None => true,
                Some(moved) => !moved && !successors.contains_key(&number),
            };
            if !is_kept {
                self.cache.room_changed(&place.desired.node);
                continue;
            }
            if !place.was_fenced() && self.cache.has_room_for(&place.desired) {
                place.is_in_engine = true;
                self.cache.set_member(&place.holder, Some(place.desired.clone()));
            }
            self.reservations.successors.push(place);
        }
    }
}

impl Cache {
    /// Pending members of a gang that get kept places, by the number of the place. Members of equal
    /// parts go by name.
    pub(in crate::state) fn successors(
        &self,
        group: &GroupName,
        places: &[SuccessorPlace],
    ) -> BTreeMap<usize, PodUid> {
        if places.is_empty() {
            return BTreeMap::new();
        }
        let members = self.members(group).filter(|uid| self.is_pending(uid));
        let mut pending: Vec<_> = members
            .filter_map(|uid| {
                let record = self.pod(uid)?;
                Some((Arc::clone(&record.pod.meta.name.name), uid, record.member.as_ref()?))
            })
            .collect();
        pending
            .sort_by(|(name, uid, _), (other, other_uid, _)| (name, uid).cmp(&(other, other_uid)));
        let mut by_part: BTreeMap<_, VecDeque<_>> = BTreeMap::new();
        for (_, uid, member) in pending {
            by_part.entry((&member.sub, member.rank)).or_default().push_back((uid, member));
        }
        let mut successors = BTreeMap::new();
        for (number, place) in places.iter().enumerate() {
            let Some(before) = place.member() else { continue };
            let candidates = by_part.get_mut(&(&before.sub, before.rank));
            if let Some((uid, _)) = candidates
                .and_then(|candidates| candidates.pop_front_if(|(_, member)| *member == before))
            {
                successors.insert(number, uid.clone());
            }
        }
        successors
    }

    /// Whether a place is free as it was: its node is open, its resources are free, and no GPU of it
    /// is fenced.
    pub(in crate::state) fn has_room_for(&self, desired: &DesiredMember) -> bool {
        let cluster = &self.engine().world.cluster;
        let Some(node) = self.engine().node(&desired.node) else { return false };
        if !cluster.is_open(node) || !desired.shape.resources.fits(&cluster.free(node)) {
            return false;
        }
        // Parts are checked in sequence on a copy: two of them may be of one GPU.
        let mut gpus = cluster.gpus(node).to_vec();
        desired.gpus.iter().all(|part| {
            let Some(gpu) = gpus.get_mut(usize::from(part.gpu)) else { return false };
            let Some(rest) = gpu.without(part).filter(|_| !gpu.is_closed) else { return false };
            *gpu = rest;
            true
        })
    }

    /// Whether only the former member or its claims keep a place from its successor.
    fn is_about_to_be_free(&self, place: &SuccessorPlace) -> bool {
        let Successor::OfMember { predecessor, .. } = &place.successor else { return false };
        let DesiredMember { node, gpus, .. } = &place.desired;
        if self.has_fenced_gpu(node, &place.desired) {
            return false;
        }
        let is_gone = |uid: &PodUid| uid == predecessor || self.pod(uid).is_none();
        let overlaps = |held: &HeldDevices| {
            held.parts.iter().any(|part| gpus.iter().any(|own| own.gpu == part.gpu))
        };
        self.pod(predecessor).is_some_and(PodRecord::occupies)
            || self
                .devices()
                .held(node)
                .iter()
                .any(|held| overlaps(held) && held.pods.iter().all(is_gone))
    }

    /// Whether a member leaves because it failed, because a GPU of it is fenced, or because its node
    /// is lost. A pod that is being deleted may end with a failure, which is none.
    fn leaves_by_fault(&self, uid: &PodUid, record: &PodRecord) -> bool {
        let has_failed = record.pod.phase == Phase::Failed && record.pod.meta.deleted.is_none();
        has_failed
            || record.place.as_ref().is_some_and(|place| {
                self.lost_nodes().contains_key(&place.node)
                    || self
                        .engine()
                        .desired(uid)
                        .is_some_and(|member| self.has_fenced_gpu(&place.node, member))
            })
    }

    /// Whether a GPU of a member has a taint that keeps pods away.
    fn has_fenced_gpu(&self, node: &str, member: &DesiredMember) -> bool {
        let Some(gpus) = self.devices().gpus(node) else { return false };
        member.gpus.iter().any(|part| {
            gpus.devices.gpus.get(usize::from(part.gpu)).is_some_and(|gpu| gpu.is_closed)
        })
    }

    /// The place of a member that leaves, as a member of a workload of its own: nothing is evicted or
    /// moved for another pod's sake there.
    fn kept_member(&self, uid: &PodUid, record: &PodRecord) -> Option<DesiredMember> {
        let node = &record.place.as_ref()?.node;
        let member = self.engine().desired(uid).filter(|member| member.node == *node)?;
        let profile = Profile {
            is_preemptible: false,
            is_movable: false,
            tenant: Arc::clone(&member.workload.profile.tenant),
            ..Profile::new(format!("successor of {}", record.pod.meta.name))
        };
        let workload = DesiredWorkload {
            profile: Arc::new(profile),
            min_members: 1,
            coupling: Coupling::default(),
        };
        Some(DesiredMember { workload, budget: None, ..member.clone() })
    }
}

fn waits(node: &NodeName, message: String) -> PendingReason {
    PendingReason::NoDevices { nodes: 1, last: NodeError { node: node.to_string(), message } }
}
