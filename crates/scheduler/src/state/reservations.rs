//! Places that are kept for pods that cannot take them yet: nominations, whose victims leave first,
//! and places for the successors of moved pods and of members of gangs that restart.
//!
//! Both end at a deadline, and count in the engine cache until then. They stay two types. A
//! nomination belongs to known pods and holds by their records. A successor does not exist yet, so
//! its place is a member of its own. An indeterminate bind is no reservation: its pod has its place,
//! and no deadline may end it.

pub(super) mod member_places;
pub(super) mod nomination;
pub(super) mod successor_places;

use std::collections::{BTreeMap, BTreeSet};

use octavo_kube_io::objects::PodUid;

use super::queue::QueueKey;
use crate::groups::GroupName;
use nomination::Nomination;
use successor_places::SuccessorPlace;

/// Places that are kept for pods that cannot take them yet.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    nominations: BTreeMap<QueueKey, Nomination>,
    successors: Vec<SuccessorPlace>,
    /// Gangs that may restart after a fault of a member, with the time in milliseconds until which
    /// the places of members that leave are kept.
    restarts: BTreeMap<GroupName, u64>,
}

impl Reservations {
    /// The nomination of an entry.
    pub(super) fn nomination(&self, key: &QueueKey) -> Option<&Nomination> {
        self.nominations.get(key)
    }

    /// Whether a gang restarts after a fault of a member.
    pub(super) fn is_restarting(&self, group: &GroupName) -> bool {
        self.restarts.contains_key(group)
    }

    /// Whether an entry has a nomination.
    pub(super) fn is_nominated(&self, key: &QueueKey) -> bool {
        self.nominations.contains_key(key)
    }

    /// Entries with a nomination.
    pub(super) fn nominated_entries(&self) -> Vec<QueueKey> {
        self.nominations.keys().cloned().collect()
    }

    /// Number of nominations.
    pub(super) fn nomination_count(&self) -> usize {
        self.nominations.len()
    }

    /// Whether there are no nominations.
    pub(super) fn has_no_nomination(&self) -> bool {
        self.nominations.is_empty()
    }

    /// Victims that have not left yet.
    pub(super) fn victims(&self) -> impl Iterator<Item = &PodUid> {
        self.nominations.values().flat_map(Nomination::victims)
    }

    /// All victims and borrowers, also those that have left: their claims may not be deallocated yet.
    pub(super) fn all_victims(&self) -> BTreeSet<PodUid> {
        self.nominations.values().flat_map(Nomination::all_victims).cloned().collect()
    }

    /// Whether a nomination has this pod as a victim or borrower: its claims hold nominated devices,
    /// also after it has left.
    pub(super) fn is_victim(&self, uid: &str) -> bool {
        self.nominations.values().any(|nomination| nomination.has_victim(uid))
    }
}
