//! What waits for a place: single pods and gangs, by priority and then by age.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

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
    /// All, in their order.
    order: BTreeSet<Rank>,
    /// Those that were refused.
    refused: FxHashSet<Unit>,
    /// Those that wait for a time, by it.
    timed: BTreeSet<(u64, Unit)>,
}

impl Queue {
    /// Adds a unit, or changes its rank; what is new is ready.
    pub(super) fn insert(&mut self, rank: Rank) {
        let unit = rank.unit.clone();
        let Some((known, _)) = self.units.get_mut(&unit) else {
            self.ready.insert(rank.clone());
            self.order.insert(rank.clone());
            self.units.insert(unit, (rank, State::Ready));
            return;
        };
        if *known != rank {
            if self.ready.remove(known) {
                self.ready.insert(rank.clone());
            }
            self.order.remove(known);
            self.order.insert(rank.clone());
            *known = rank;
        }
    }

    /// Takes a unit out.
    pub(super) fn remove(&mut self, unit: &Unit) {
        if self.units.contains_key(unit) {
            self.set(unit, State::Missing);
            if let Some((rank, _)) = self.units.remove(unit) {
                self.order.remove(&rank);
            }
        }
    }

    /// Changes how a unit waits. Nothing happens if it is not there.
    pub(super) fn set(&mut self, unit: &Unit, state: State) {
        let Some((rank, known)) = self.units.get_mut(unit) else { return };
        match std::mem::replace(known, state) {
            State::Ready => {
                self.ready.remove(rank);
            }
            State::Refused(_) => {
                self.refused.remove(unit);
            }
            State::NotBefore(at) => {
                self.timed.remove(&(at, unit.clone()));
            }
            State::Missing | State::Promised => {}
        }
        match state {
            State::Ready => {
                self.ready.insert(rank.clone());
            }
            State::Refused(_) => {
                self.refused.insert(unit.clone());
            }
            State::NotBefore(at) => {
                self.timed.insert((at, unit.clone()));
            }
            State::Missing | State::Promised => {}
        }
    }

    /// How a unit waits.
    pub(super) fn state(&self, unit: &Unit) -> Option<State> {
        self.units.get(unit).map(|(_, state)| *state)
    }

    /// Makes ready those that were refused before the change of this number.
    pub(super) fn something_changed(&mut self, number: u64) {
        if self.refused.is_empty() {
            return;
        }
        for unit in std::mem::take(&mut self.refused) {
            let Some((rank, state)) = self.units.get_mut(&unit) else { continue };
            if matches!(state, State::Refused(known) if *known < number) {
                *state = State::Ready;
                self.ready.insert(rank.clone());
            } else {
                self.refused.insert(unit);
            }
        }
    }

    /// Makes ready those whose time has come; says when the next one's will.
    pub(super) fn time_is(&mut self, now: u64) -> Option<u64> {
        loop {
            let (at, unit) = self.timed.first()?.clone();
            if at > now {
                return Some(at);
            }
            self.set(&unit, State::Ready);
        }
    }

    /// The first that is ready, after a rank.
    pub(super) fn next(&self, after: Option<&Rank>) -> Option<Rank> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.ready.range((from, std::ops::Bound::Unbounded)).next().cloned()
    }

    /// All units, in their order.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &Rank> {
        self.order.iter()
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
