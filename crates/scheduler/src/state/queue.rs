//! What waits for a place: single pods and gangs, by priority and then by age.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::groups::GroupName;

/// What is decided on as one: a pod by itself, or a gang.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum QueueKey {
    /// A pod, by UID.
    Pod(Arc<str>),
    /// A gang.
    Group(GroupName),
}

/// Place in the queue: greater priority first, then who came first, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePosition {
    /// Whether places were promised to it: others have left for it.
    pub(super) is_nominated: Reverse<bool>,
    pub(super) priority: Reverse<i32>,
    /// Seconds since 1970.
    pub(super) created: i64,
    pub(super) name: Arc<str>,
    pub(super) key: QueueKey,
}

/// How a unit waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It can be decided on.
    Ready,
    /// It was refused, and nothing has changed since that could help: the number of the change up to
    /// which that is known.
    Unschedulable(u64),
    /// Something must be there first (pods of the gang, claims): its coming makes it ready.
    Gated,
    /// Not before this time, in milliseconds.
    BackoffUntil(u64),
    /// Others must leave first.
    Nominated,
}

/// How long the end of the queue may be out of reach before those further back get turns of their own, in
/// milliseconds.
const STARVATION_TIMEOUT_MS: u64 = 1000;

/// A unit that waits.
#[derive(Debug)]
struct Entry {
    position: QueuePosition,
    state: State,
    /// Number of the decision that was the last on it; 0: there was none yet.
    last_attempt: u64,
}

/// The queue. Rounds of decisions begin at its head, so that what is free goes to those before others. But a
/// round is cut, and a change makes all who were refused ready again: where changes come faster than rounds
/// reach the end, the head would be refused again and again and those further back never be asked about.
/// Once the end was out of reach for [`PATIENCE`], every second round goes on where the last such round, or one
/// that began at the head, was cut: so all are asked about again and again, and always in their order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: FxHashMap<QueueKey, Entry>,
    ready: BTreeSet<QueuePosition>,
    /// All, in their order.
    sorted: BTreeSet<QueuePosition>,
    /// Those that were refused.
    unschedulable: FxHashSet<QueueKey>,
    /// Those that wait for a time, by it.
    timed: BTreeSet<(u64, QueueKey)>,
    /// DecisionLog so far.
    attempts: u64,
    /// Since when rounds that began at the head have not reached the end.
    tail_missed_since: Option<u64>,
    /// Whether the last round was a sweep.
    was_resumed: bool,
    /// Up to whom the sweep through the queue has come; `None`: it begins at the head.
    resume_after: Option<QueuePosition>,
}

/// A round of decisions.
#[derive(Debug)]
pub(super) struct Cycle {
    /// Whether it goes on where another was cut, and does not begin at the head.
    is_resumed: bool,
    /// Who was decided on last: the next is behind it.
    pub(super) after: Option<QueuePosition>,
}

impl Queue {
    /// Adds a unit, or changes its rank; what is new is ready.
    pub(super) fn insert(&mut self, position: QueuePosition) {
        let key = position.key.clone();
        let Some(entry) = self.entries.get_mut(&key) else {
            self.ready.insert(position.clone());
            self.sorted.insert(position.clone());
            self.entries.insert(key, Entry { position, state: State::Ready, last_attempt: 0 });
            return;
        };
        let known = &mut entry.position;
        if *known != position {
            if self.ready.remove(known) {
                self.ready.insert(position.clone());
            }
            self.sorted.remove(known);
            self.sorted.insert(position.clone());
            *known = position;
        }
    }

    /// Takes a unit out.
    pub(super) fn remove(&mut self, key: &QueueKey) {
        if self.entries.contains_key(key) {
            self.set_state(key, State::Gated);
            if let Some(entry) = self.entries.remove(key) {
                self.sorted.remove(&entry.position);
            }
        }
    }

    /// Changes how a unit waits. Nothing happens if it is not there.
    pub(super) fn set_state(&mut self, key: &QueueKey, state: State) {
        let Some(Entry { position, state: known, .. }) = self.entries.get_mut(key) else { return };
        match std::mem::replace(known, state) {
            State::Ready => {
                self.ready.remove(position);
            }
            State::Unschedulable(_) => {
                self.unschedulable.remove(key);
            }
            State::BackoffUntil(at) => {
                self.timed.remove(&(at, key.clone()));
            }
            State::Gated | State::Nominated => {}
        }
        match state {
            State::Ready => {
                self.ready.insert(position.clone());
            }
            State::Unschedulable(_) => {
                self.unschedulable.insert(key.clone());
            }
            State::BackoffUntil(at) => {
                self.timed.insert((at, key.clone()));
            }
            State::Gated | State::Nominated => {}
        }
    }

    /// How a unit waits.
    pub(super) fn state(&self, key: &QueueKey) -> Option<State> {
        self.entries.get(key).map(|entry| entry.state)
    }

    /// Number of the last decision on a unit; 0: there was none.
    pub(super) fn last_attempt(&self, key: &QueueKey) -> u64 {
        self.entries.get(key).map_or(0, |entry| entry.last_attempt)
    }

    /// A unit is decided on now.
    pub(super) fn record_attempt(&mut self, key: &QueueKey) {
        self.attempts += 1;
        if let Some(entry) = self.entries.get_mut(key) {
            entry.last_attempt = self.attempts;
        }
    }

    /// Begins a round.
    pub(super) fn begin_cycle(&mut self, now: u64) -> Cycle {
        let is_starving = self
            .tail_missed_since
            .is_some_and(|since| since.saturating_add(STARVATION_TIMEOUT_MS) <= now);
        self.was_resumed = is_starving && !self.was_resumed;
        let after = if self.was_resumed { self.resume_after.clone() } else { None };
        Cycle { is_resumed: self.was_resumed, after }
    }

    /// A round ends before the queue does.
    pub(super) fn end_cycle_early(&mut self, cycle: Cycle, now: u64) {
        if !cycle.is_resumed {
            self.tail_missed_since.get_or_insert(now);
        }
        // Those before were asked about in this sweep, or just now.
        if cycle.is_resumed || self.resume_after < cycle.after {
            self.resume_after = cycle.after;
        }
    }

    /// A round has reached the end. Says whether there may be more at once: after a sweep it is the turn of
    /// the head.
    pub(super) fn end_cycle(&mut self, cycle: &Cycle) -> bool {
        self.resume_after = None;
        if !cycle.is_resumed {
            self.tail_missed_since = None;
        }
        cycle.is_resumed
    }

    /// Makes ready those that were refused before the change of this number.
    pub(super) fn requeue_unschedulable(&mut self, revision: u64) {
        if self.unschedulable.is_empty() {
            return;
        }
        for key in std::mem::take(&mut self.unschedulable) {
            let Some(Entry { position, state, .. }) = self.entries.get_mut(&key) else { continue };
            if matches!(state, State::Unschedulable(known) if *known < revision) {
                *state = State::Ready;
                self.ready.insert(position.clone());
            } else {
                self.unschedulable.insert(key);
            }
        }
    }

    /// Makes ready those whose time has come; says when the next one's will.
    pub(super) fn tick(&mut self, now: u64) -> Option<u64> {
        loop {
            let (at, key) = self.timed.first()?.clone();
            if at > now {
                return Some(at);
            }
            self.set_state(&key, State::Ready);
        }
    }

    /// The first that is ready, after a rank.
    pub(super) fn next(&self, after: Option<&QueuePosition>) -> Option<QueuePosition> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.ready.range((from, std::ops::Bound::Unbounded)).next().cloned()
    }

    /// All units, in their order.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &QueuePosition> {
        self.sorted.iter()
    }

    /// All units, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&QueueKey, &QueuePosition, State)> {
        self.entries.iter().map(|(key, entry)| (key, &entry.position, entry.state))
    }

    /// How many wait, and how many of them are ready.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.entries.len(), self.ready.len())
    }
}
