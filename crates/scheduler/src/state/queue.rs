//! The queue of pending pods and gangs, by priority and then by age.

mod refused;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use octavo_kube_io::objects::PodUid;

use crate::groups::GroupName;
use crate::metrics::Subject;
use refused::RefusedClass;
pub(super) use refused::{AwaitedRoom, ClassId, Help, Refused, Search, WaitsFor};

/// An entry that is decided on as one: a single pod or a gang.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum QueueKey {
    /// A pod, by UID.
    Pod(PodUid),
    /// A gang.
    Group(GroupName),
}

impl QueueKey {
    /// Its kind in metrics.
    pub(super) fn subject(&self) -> Subject {
        match self {
            Self::Pod(_) => Subject::Pod,
            Self::Group(_) => Subject::Gang,
        }
    }
}

/// Position in the queue: nominated entries first, then by priority, age and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePosition {
    /// Whether it has a nomination: victims leave for it.
    pub(super) is_nominated: Reverse<bool>,
    pub(super) priority: Reverse<i32>,
    /// Seconds since 1970.
    pub(super) created: i64,
    pub(super) name: Arc<str>,
    pub(super) key: QueueKey,
}

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Ready for a decision.
    Ready,
    /// Unschedulable, and nothing has changed since that may help.
    Unschedulable,
    /// Waits for an object, such as pods of the gang or claims. The object makes it ready.
    Gated,
    /// Not ready before this time in milliseconds.
    BackoffUntil(u64),
    /// Has a nomination; victims must leave first.
    Nominated,
}

/// Milliseconds without reaching the tail after which entries at the tail get cycles of their own.
const STARVATION_TIMEOUT_MS: u64 = 1000;

/// A pending entry.
#[derive(Debug)]
struct Entry {
    position: QueuePosition,
    state: State,
    /// Number of the last decision on it; 0: none.
    last_attempt: u64,
    /// The class with which it waits, or for which it is tried.
    class: Option<ClassId>,
}

/// The queue. Each cycle starts at the head, so that free capacity goes to the first entries.
///
/// But cycles end early, and changes of the cluster make unschedulable entries ready again. If changes come faster than cycles reach the tail, the head would be tried again and again, and
/// the tail never. So once the tail was missed for [`STARVATION_TIMEOUT_MS`], every other cycle
/// resumes where the previous one stopped. All entries are tried that way, always in queue order.
#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: HashMap<QueueKey, Entry>,
    ready: BTreeSet<QueuePosition>,
    /// All entries in order.
    sorted: BTreeSet<QueuePosition>,
    /// Refused entries.
    classes: HashMap<ClassId, RefusedClass>,
    next_class: u64,
    /// When classes were last looked for that were refused long ago, in milliseconds.
    flushed_at: u64,
    /// Entries that wait for a time, by that time.
    timed: BTreeSet<(u64, QueueKey)>,
    /// Decisions so far.
    attempts: u64,
    /// Since when cycles from the head have not reached the tail.
    tail_missed_since: Option<u64>,
    /// Whether the last cycle was a resumed one.
    was_resumed: bool,
    /// Where the next resumed cycle continues; `None`: at the head.
    resume_after: Option<QueuePosition>,
    /// Gangs whose entries are outdated, because pods have come, gone or changed. With the time in
    /// milliseconds before which they are not ready, after a failure.
    outdated: BTreeMap<GroupName, Option<u64>>,
}

/// A scheduling cycle.
#[derive(Debug)]
pub(super) struct Cycle {
    /// Whether it resumes an earlier cycle instead of starting at the head.
    is_resumed: bool,
    /// The last entry that was tried; the next is behind it.
    pub(super) after: Option<QueuePosition>,
}

impl Queue {
    /// Notes that the entry of a gang is outdated. After a failure it is not ready before a time in
    /// milliseconds; the latest counts.
    pub(super) fn outdate(&mut self, group: &GroupName, not_before: Option<u64>) {
        let latest = self.outdated.entry(group.clone()).or_default();
        *latest = (*latest).max(not_before);
    }

    /// Gangs whose entries were outdated since the last call, with the time before which they are
    /// not ready.
    pub(super) fn take_outdated(&mut self) -> BTreeMap<GroupName, Option<u64>> {
        std::mem::take(&mut self.outdated)
    }

    /// Adds an entry as ready, or changes the position of an existing one.
    pub(super) fn insert(&mut self, position: QueuePosition) {
        let key = position.key.clone();
        let Some(entry) = self.entries.get_mut(&key) else {
            self.ready.insert(position.clone());
            self.sorted.insert(position.clone());
            let (state, class) = (State::Ready, None);
            self.entries.insert(key, Entry { position, state, last_attempt: 0, class });
            return;
        };
        let current = &mut entry.position;
        if *current != position {
            if self.ready.remove(current) {
                self.ready.insert(position.clone());
            }
            if let Some(class) = entry.class.and_then(|class| self.classes.get_mut(&class)) {
                class.reposition(current, &position);
            }
            self.sorted.remove(current);
            self.sorted.insert(position.clone());
            *current = position;
        }
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, key: &QueueKey) {
        if self.entries.contains_key(key) {
            self.set_state(key, State::Gated);
            if let Some(entry) = self.entries.remove(key) {
                self.sorted.remove(&entry.position);
            }
        }
    }

    /// Sets the state of an entry, if it exists. It waits with no class any more.
    pub(super) fn set_state(&mut self, key: &QueueKey, state: State) {
        self.leave_class(key);
        self.move_to(key, state);
    }

    fn move_to(&mut self, key: &QueueKey, state: State) {
        let Some(Entry { position, state: current, .. }) = self.entries.get_mut(key) else {
            return;
        };
        match std::mem::replace(current, state) {
            State::Ready => {
                self.ready.remove(position);
            }
            State::BackoffUntil(at) => {
                self.timed.remove(&(at, key.clone()));
            }
            State::Gated | State::Unschedulable | State::Nominated => {}
        }
        match state {
            State::Ready => {
                self.ready.insert(position.clone());
            }
            State::BackoffUntil(at) => {
                self.timed.insert((at, key.clone()));
            }
            State::Gated | State::Unschedulable | State::Nominated => {}
        }
    }

    /// The state of an entry.
    pub(super) fn state(&self, key: &QueueKey) -> Option<State> {
        self.entries.get(key).map(|entry| entry.state)
    }

    /// Number of the last decision on an entry; 0: none.
    pub(super) fn last_attempt(&self, key: &QueueKey) -> u64 {
        self.entries.get(key).map_or(0, |entry| entry.last_attempt)
    }

    /// Records that an entry is decided on now.
    pub(super) fn record_attempt(&mut self, key: &QueueKey) {
        self.attempts += 1;
        if let Some(entry) = self.entries.get_mut(key) {
            entry.last_attempt = self.attempts;
        }
    }

    /// Begins a cycle.
    pub(super) fn begin_cycle(&mut self, now: u64) -> Cycle {
        let is_starving = self
            .tail_missed_since
            .is_some_and(|since| since.saturating_add(STARVATION_TIMEOUT_MS) <= now);
        self.was_resumed = is_starving && !self.was_resumed;
        let after = if self.was_resumed { self.resume_after.clone() } else { None };
        Cycle { is_resumed: self.was_resumed, after }
    }

    /// Ends a cycle before it has reached the tail.
    pub(super) fn end_cycle_early(&mut self, cycle: Cycle, now: u64) {
        if !cycle.is_resumed {
            self.tail_missed_since.get_or_insert(now);
        }
        // The entries before were tried in this resumed cycle, or just now.
        if cycle.is_resumed || self.resume_after < cycle.after {
            self.resume_after = cycle.after;
        }
    }

    /// Ends a cycle that has reached the tail. Returns whether more may be ready at once: after a
    /// resumed cycle the head is next.
    pub(super) fn end_cycle(&mut self, cycle: &Cycle) -> bool {
        self.resume_after = None;
        if !cycle.is_resumed {
            self.tail_missed_since = None;
        }
        cycle.is_resumed
    }

    /// Makes entries ready whose time has come. Returns the next deadline.
    pub(super) fn tick(&mut self, now: u64) -> Option<u64> {
        self.flush(now);
        loop {
            let (at, key) = self.timed.first()?.clone();
            if at > now {
                return Some(at);
            }
            self.move_to(&key, State::Ready);
        }
    }

    /// The first ready entry behind a position.
    pub(super) fn next(&self, after: Option<&QueuePosition>) -> Option<QueuePosition> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.ready.range((from, std::ops::Bound::Unbounded)).next().cloned()
    }

    /// All entries in order.
    pub(super) fn in_order(&self) -> impl Iterator<Item = &QueuePosition> {
        self.sorted.iter()
    }

    /// The number of entries, and how many of them are ready.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.entries.len(), self.ready.len())
    }
}
