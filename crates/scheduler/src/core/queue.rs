//! What waits for a place: single pods and gangs, by priority and then by age.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::groups::GroupName;

/// What is decided on as one: a pod by itself, or a gang.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Unit {
    /// A pod, by UID.
    Pod(Arc<str>),
    /// A gang.
    Group(GroupName),
}

/// Place in the queue: greater priority first, then who came first, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// Whether places were promised to it: others have left for it.
    pub(super) is_promised: Reverse<bool>,
    pub(super) priority: Reverse<i32>,
    /// Seconds since 1970.
    pub(super) created: i64,
    pub(super) name: Arc<str>,
    pub(super) unit: Unit,
}

/// How a unit waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It can be decided on.
    Ready,
    /// It was refused, and nothing has changed since that could help: the number of the change up to
    /// which that is known.
    Refused(u64),
    /// Something must be there first (pods of the gang, claims): its coming makes it ready.
    Missing,
    /// Not before this time, in milliseconds.
    NotBefore(u64),
    /// Others must leave first.
    Promised,
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct Queue {
    units: FxHashMap<Unit, (Rank, State)>,
    ready: BTreeSet<Rank>,
}

impl Queue {
    /// Adds a unit, or changes its rank; what is new is ready.
    pub(super) fn insert(&mut self, rank: Rank) {
        let unit = rank.unit.clone();
        match self.units.get_mut(&unit) {
            Some((known, _)) if *known == rank => {}
            Some((known, state)) => {
                if self.ready.remove(known) {
                    self.ready.insert(rank.clone());
                }
                *known = rank;
                let _ = state;
            }
            None => {
                self.ready.insert(rank.clone());
                self.units.insert(unit, (rank, State::Ready));
            }
        }
    }

    /// Takes a unit out.
    pub(super) fn remove(&mut self, unit: &Unit) {
        if let Some((rank, _)) = self.units.remove(unit) {
            self.ready.remove(&rank);
        }
    }

    /// Changes how a unit waits. Nothing happens if it is not there.
    pub(super) fn set(&mut self, unit: &Unit, state: State) {
        let Some((rank, known)) = self.units.get_mut(unit) else { return };
        *known = state;
        if state == State::Ready {
            self.ready.insert(rank.clone());
        } else {
            self.ready.remove(rank);
        }
    }

    /// How a unit waits.
    pub(super) fn state(&self, unit: &Unit) -> Option<State> {
        self.units.get(unit).map(|(_, state)| *state)
    }

    /// Makes ready those that were refused before the change of this number.
    pub(super) fn something_changed(&mut self, number: u64) {
        for (rank, state) in self.units.values_mut() {
            if matches!(state, State::Refused(known) if *known < number) {
                *state = State::Ready;
                self.ready.insert(rank.clone());
            }
        }
    }

    /// Makes ready those whose time has come; says when the next one's will.
    pub(super) fn time_is(&mut self, now: u64) -> Option<u64> {
        let mut next: Option<u64> = None;
        for (rank, state) in self.units.values_mut() {
            let State::NotBefore(at) = *state else { continue };
            if at <= now {
                *state = State::Ready;
                self.ready.insert(rank.clone());
            } else {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        next
    }

    /// The first that is ready, after a rank.
    pub(super) fn next(&self, after: Option<&Rank>) -> Option<Rank> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.ready.range((from, std::ops::Bound::Unbounded)).next().cloned()
    }

    /// All units, in no order.
    pub(super) fn units(&self) -> impl Iterator<Item = (&Unit, &Rank, State)> {
        self.units.iter().map(|(unit, (rank, state))| (unit, rank, *state))
    }

    /// How many wait, and how many of them are ready.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.units.len(), self.ready.len())
    }
}
