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

/// How long the end of the queue may be out of reach before those further back get turns of their own, in
/// milliseconds.
const PATIENCE: u64 = 1000;

/// A unit that waits.
#[derive(Debug)]
struct Entry {
    rank: Rank,
    state: State,
    /// Number of the decision that was the last on it; 0: there was none yet.
    decided: u64,
}

/// The queue. Rounds of decisions begin at its head, so that what is free goes to those before others. But a
/// round is cut, and a change makes all who were refused ready again: where changes come faster than rounds
/// reach the end, the head would be refused again and again and those further back never be asked about.
/// Once the end was out of reach for [`PATIENCE`], every second round goes on where the last such round, or one
/// that began at the head, was cut: so all are asked about again and again, and always in their order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    units: FxHashMap<Unit, Entry>,
    ready: BTreeSet<Rank>,
    /// All, in their order.
    order: BTreeSet<Rank>,
    /// Those that were refused.
    refused: FxHashSet<Unit>,
    /// Those that wait for a time, by it.
    timed: BTreeSet<(u64, Unit)>,
    /// Decisions so far.
    decisions: u64,
    /// Since when rounds that began at the head have not reached the end.
    behind_since: Option<u64>,
    /// Whether the last round was a sweep.
    was_sweep: bool,
    /// Up to whom the sweep through the queue has come; `None`: it begins at the head.
    swept: Option<Rank>,
}

/// A round of decisions.
#[derive(Debug)]
pub(super) struct Round {
    /// Whether it goes on where another was cut, and does not begin at the head.
    is_sweep: bool,
    /// Who was decided on last: the next is behind it.
    pub(super) after: Option<Rank>,
}

impl Queue {
    /// Adds a unit, or changes its rank; what is new is ready.
    pub(super) fn insert(&mut self, rank: Rank) {
        let unit = rank.unit.clone();
        let Some(entry) = self.units.get_mut(&unit) else {
            self.ready.insert(rank.clone());
            self.order.insert(rank.clone());
            self.units.insert(unit, Entry { rank, state: State::Ready, decided: 0 });
            return;
        };
        let known = &mut entry.rank;
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
            if let Some(entry) = self.units.remove(unit) {
                self.order.remove(&entry.rank);
            }
        }
    }

    /// Changes how a unit waits. Nothing happens if it is not there.
    pub(super) fn set(&mut self, unit: &Unit, state: State) {
        let Some(Entry { rank, state: known, .. }) = self.units.get_mut(unit) else { return };
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
        self.units.get(unit).map(|entry| entry.state)
    }

    /// Number of the last decision on a unit; 0: there was none.
    pub(super) fn last_decision(&self, unit: &Unit) -> u64 {
        self.units.get(unit).map_or(0, |entry| entry.decided)
    }

    /// A unit is decided on now.
    pub(super) fn is_decided(&mut self, unit: &Unit) {
        self.decisions += 1;
        if let Some(entry) = self.units.get_mut(unit) {
            entry.decided = self.decisions;
        }
    }

    /// Begins a round.
    pub(super) fn begin_cycle(&mut self, now: u64) -> Round {
        let is_behind =
            self.behind_since.is_some_and(|since| since.saturating_add(PATIENCE) <= now);
        self.was_sweep = is_behind && !self.was_sweep;
        let after = if self.was_sweep { self.swept.clone() } else { None };
        Round { is_sweep: self.was_sweep, after }
    }

    /// A round ends before the queue does.
    pub(super) fn is_cut(&mut self, round: Round, now: u64) {
        if !round.is_sweep {
            self.behind_since.get_or_insert(now);
        }
        // Those before were asked about in this sweep, or just now.
        if round.is_sweep || self.swept < round.after {
            self.swept = round.after;
        }
    }

    /// A round has reached the end. Says whether there may be more at once: after a sweep it is the turn of
    /// the head.
    pub(super) fn is_at_end(&mut self, round: &Round) -> bool {
        self.swept = None;
        if !round.is_sweep {
            self.behind_since = None;
        }
        round.is_sweep
    }

    /// Makes ready those that were refused before the change of this number.
    pub(super) fn something_changed(&mut self, number: u64) {
        if self.refused.is_empty() {
            return;
        }
        for unit in std::mem::take(&mut self.refused) {
            let Some(Entry { rank, state, .. }) = self.units.get_mut(&unit) else { continue };
            if matches!(state, State::Refused(known) if *known < number) {
                *state = State::Ready;
                self.ready.insert(rank.clone());
            } else {
                self.refused.insert(unit);
            }
        }
    }

    /// Makes ready those whose time has come; says when the next one's will.
    pub(super) fn tick(&mut self, now: u64) -> Option<u64> {
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
        self.units.iter().map(|(unit, entry)| (unit, &entry.rank, entry.state))
    }

    /// How many wait, and how many of them are ready.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.units.len(), self.ready.len())
    }
}
