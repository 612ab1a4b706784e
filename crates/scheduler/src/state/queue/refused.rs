//! Refused entries: what each waits for, and when it is tried again.
//!
//! Entries with equal requests get equal answers, so they form a class and wait together. A change
//! that may help a class wakes its first entry alone. If that one is placed, the next one wakes; if
//! it is refused again, the class waits on. A change is thus answered once for each class, not for
//! each entry.
//!
//! A search for victims costs far more than a look for free places. After a refusal it is not
//! repeated before a backoff has passed, which doubles with each. Until then entries that wake are
//! decided without victims.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_engine::Shape;
use octavo_kube_io::objects::NodeName;

use super::{Queue, QueueKey, QueuePosition, State};

/// Milliseconds before the first repetition of a search for victims.
const MIN_BACKOFF_MS: u64 = 1000;
/// Milliseconds before a later repetition, at most.
const MAX_BACKOFF_MS: u64 = 10_000;
/// Milliseconds between two attempts of a class that changes wake in vain.
const RETRY_INTERVAL_MS: u64 = 1000;

/// Milliseconds after which each entry of a refused class is tried, whatever has changed.
const MAX_WAIT_MS: u64 = 300_000;
/// Milliseconds between two looks for such classes.
const FLUSH_INTERVAL_MS: u64 = 10_000;

/// Entries with equal requests. Ids are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::state) struct ClassId(u64);

/// What may make a refused entry schedulable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::state) struct WaitsFor {
    pub(in crate::state) room: AwaitedRoom,
    /// Whether it asks for devices.
    pub(in crate::state) uses_devices: bool,
    /// It may evict pods below this priority.
    pub(in crate::state) evicts_below: Option<i32>,
    /// It may move pods.
    pub(in crate::state) moves: bool,
}

impl WaitsFor {
    /// Whether it may evict or move other pods.
    pub(in crate::state) fn may_have_victims(&self) -> bool {
        self.moves || self.evicts_below.is_some()
    }
}

/// The room that a refused entry waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::state) enum AwaitedRoom {
    /// Room for one of these requests on a node. Without it, a change of that node cannot help.
    For(Vec<Arc<Shape>>),
    /// Any change of pods or nodes: for example, neighbours keep it away from whole domains.
    Any,
    /// None: another object must change.
    None,
}

/// How a change may help an entry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::state) enum Help {
    /// It may find victims where it found none.
    Victims,
    /// It may find a place now; how is not known.
    Perhaps,
    /// This node has room for it.
    Room(NodeName),
    /// It must be decided in full, because its request or an object that it uses has changed.
    Reset,
}

/// A refusal.
#[derive(Clone, Debug)]
pub(in crate::state) struct Refused {
    /// The cluster revision of the decision.
    pub(in crate::state) revision: u64,
    /// Its time in milliseconds.
    pub(in crate::state) now: u64,
    pub(in crate::state) search: Search,
    /// The help that woke the entry, if it is still there and did not help.
    pub(in crate::state) useless: Option<Help>,
}

/// What was searched before a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::state) enum Search {
    /// Free places and victims.
    #[default]
    Full,
    /// Free places. A search for victims is due after its backoff.
    WithoutVictims,
    /// Nothing: the answer was known.
    Known,
}

/// A class of refused entries.
#[derive(Debug)]
pub(super) struct RefusedClass {
    asleep: BTreeSet<QueuePosition>,
    /// The entry that is tried for all.
    awake: Option<QueueKey>,
    waits_for: Arc<WaitsFor>,
    /// The cluster revision of the last refusal.
    revision: u64,
    /// When it was refused last, in milliseconds.
    refused_at: u64,
    /// Since when its entries wait for one another, in milliseconds; `None` before a refusal.
    together_since: Option<u64>,
    /// No search for victims before this time in milliseconds.
    victims_after: u64,
    /// Searches for victims in vain, in a row.
    vain_searches: u32,
    /// The best help that it has got since the last refusal.
    help: Option<Help>,
    /// Help that was in vain last time, although no other pod took the place.
    useless: Option<Help>,
    /// Whether entries with equal requests may join.
    is_shared: bool,
}

impl RefusedClass {
    fn new(waits_for: Arc<WaitsFor>, is_shared: bool) -> Self {
        Self {
            asleep: BTreeSet::new(),
            awake: None,
            waits_for,
            revision: 0,
            refused_at: 0,
            together_since: None,
            victims_after: 0,
            vain_searches: 0,
            help: None,
            useless: None,
            is_shared,
        }
    }

    fn backs_off(&self, now: u64) -> bool {
        self.waits_for.may_have_victims() && now < self.victims_after
    }

    /// When an entry of the class is tried after a change.
    fn attempt_at(&self, help: &Help) -> u64 {
        let interval = self.refused_at.saturating_add(RETRY_INTERVAL_MS);
        match help {
            Help::Victims => self.victims_after,
            Help::Perhaps | Help::Room(_) if self.useless.as_ref() == Some(help) => interval,
            Help::Perhaps | Help::Room(_) | Help::Reset => 0,
        }
    }

    fn record_vain_search(&mut self, now: u64) {
        let doublings = self.vain_searches.min(MAX_BACKOFF_MS.ilog2());
        let backoff = (MIN_BACKOFF_MS << doublings).min(MAX_BACKOFF_MS);
        self.vain_searches = self.vain_searches.saturating_add(1);
        self.victims_after = now.saturating_add(backoff);
    }
}

impl Queue {
    /// A new class, for entries that are found to be equal.
    pub(in crate::state) fn new_class(&mut self) -> ClassId {
        self.next_class += 1;
        ClassId(self.next_class)
    }

    /// Records that an entry was refused. It waits with its class, or alone.
    pub(in crate::state) fn refuse(
        &mut self,
        key: &QueueKey,
        class: Option<ClassId>,
        waits_for: WaitsFor,
        refused: Refused,
    ) {
        let Some(entry) = self.entries.get(key) else { return };
        let own = entry.class.filter(|own| self.classes.get(own).is_some_and(|own| !own.is_shared));
        let (id, is_shared) = match (class, own) {
            (Some(class), _) => (class, true),
            (None, Some(own)) => (own, false),
            (None, None) => (self.new_class(), false),
        };
        self.join_class(key, id, || RefusedClass::new(Arc::new(waits_for.clone()), is_shared));
        let Some(class) = self.classes.get_mut(&id) else { return };
        if *class.waits_for != waits_for {
            class.waits_for = Arc::new(waits_for);
        }
        let (now, search) = (refused.now, refused.search);
        if search == Search::Full {
            class.record_vain_search(now);
        }
        class.end_attempt(refused);
        if search == Search::WithoutVictims && class.waits_for.may_have_victims() {
            self.wake_class(id, &Help::Victims, now);
        }
    }

    /// Moves an entry to its class.
    fn join_class(&mut self, key: &QueueKey, id: ClassId, new: impl FnOnce() -> RefusedClass) {
        if self.entries.get(key).is_some_and(|entry| entry.class != Some(id)) {
            self.leave_class(key);
        }
        self.move_to(key, State::Unschedulable);
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.class = Some(id);
        let class = self.classes.entry(id).or_insert_with(new);
        class.asleep.insert(entry.position.clone());
        if class.awake.as_ref() == Some(key) {
            class.awake = None;
        }
    }

    /// Removes an entry from its class. If it was tried for all, the next one is.
    pub(super) fn leave_class(&mut self, key: &QueueKey) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Some(id) = entry.class.take() else { return };
        let Some(class) = self.classes.get_mut(&id) else { return };
        class.asleep.remove(&entry.position);
        if class.awake.as_ref() == Some(key) {
            class.awake = None;
            (class.help, class.useless) = (None, None);
            self.wake_next(id, State::Ready);
        }
        if self
            .classes
            .get(&id)
            .is_some_and(|class| class.asleep.is_empty() && class.awake.is_none())
        {
            self.classes.remove(&id);
        }
    }

    /// Makes the first sleeping entry of a class the one that is tried for all.
    fn wake_next(&mut self, id: ClassId, state: State) {
        let Some(class) = self.classes.get_mut(&id) else { return };
        let Some(first) = class.asleep.pop_first() else { return };
        class.awake = Some(first.key.clone());
        self.move_to(&first.key, state);
    }

    /// Wakes a class for a change that may help it.
    pub(in crate::state) fn wake_class(&mut self, id: ClassId, help: &Help, now: u64) {
        let Some(class) = self.classes.get_mut(&id) else { return };
        if *help == Help::Reset {
            (class.victims_after, class.vain_searches) = (0, 0);
        }
        class.help = class.help.take().max(Some(help.clone()));
        let at = class.attempt_at(help);
        let state = if at <= now { State::Ready } else { State::BackoffUntil(at) };
        let Some(awake) = class.awake.clone() else {
            self.wake_next(id, state);
            return;
        };
        if let Some(State::BackoffUntil(current)) = self.state(&awake)
            && at < current
        {
            self.move_to(&awake, state);
        }
    }

    /// Classes that were refused before this cluster revision, with the first entry of each and what
    /// it waits for.
    pub(in crate::state) fn refused_before(
        &self,
        revision: u64,
    ) -> Vec<(ClassId, QueueKey, Arc<WaitsFor>, u64)> {
        let old = self.classes.iter().filter(|(_, class)| class.revision < revision);
        let all = old.filter_map(|(id, class)| {
            let first = class.awake.as_ref().or_else(|| Some(&class.asleep.first()?.key))?;
            Some((*id, first.clone(), Arc::clone(&class.waits_for), class.revision))
        });
        let mut all: Vec<_> = all.collect();
        // In the order of their refusals, because the table has none.
        all.sort_unstable_by_key(|(id, ..)| *id);
        all
    }

    /// What an entry waited for, and the help that woke it for this attempt.
    pub(in crate::state) fn woken_by(&self, key: &QueueKey) -> Option<(Arc<WaitsFor>, Help)> {
        let class = self.classes.get(&self.entries.get(key)?.class?)?;
        let is_tried = class.awake.as_ref() == Some(key);
        let help = class.help.clone().filter(|_| is_tried)?;
        Some((Arc::clone(&class.waits_for), help))
    }

    /// Wakes all entries of the oldest classes, because a change that helps may have been missed.
    /// Looks at most once each [`FLUSH_INTERVAL_MS`].
    pub(super) fn flush(&mut self, now: u64) {
        if now < self.flushed_at.saturating_add(FLUSH_INTERVAL_MS) {
            return;
        }
        self.flushed_at = now;
        let is_due = |class: &RefusedClass| {
            class.together_since.is_some_and(|since| since.saturating_add(MAX_WAIT_MS) <= now)
        };
        let due = self.classes.iter().filter(|(_, class)| is_due(class));
        let mut due: Vec<ClassId> = due.map(|(id, _)| *id).collect();
        due.sort_unstable();
        for id in due {
            // Each for itself: whether they are equal may be what was missed. Each also gets its
            // present reason.
            let Some(class) = self.classes.get_mut(&id) else { continue };
            class.together_since = Some(now);
            for position in class.asleep.clone() {
                self.leave_class(&position.key);
                self.move_to(&position.key, State::Ready);
            }
        }
    }

    /// Whether an entry may be decided with victims now.
    pub(in crate::state) fn may_search_victims(&self, key: &QueueKey, now: u64) -> bool {
        let class = self.entries.get(key).and_then(|entry| self.classes.get(&entry.class?));
        class.is_none_or(|class| !class.backs_off(now))
    }

    /// Whether the search for victims of a class was in vain lately.
    pub(in crate::state) fn backs_off(&self, class: ClassId, now: u64) -> bool {
        self.classes.get(&class).is_some_and(|class| class.backs_off(now))
    }

    /// Whether an entry was refused and waits for a change.
    pub(in crate::state) fn is_refused(&self, key: &QueueKey) -> bool {
        self.entries.get(key).is_some_and(|entry| entry.class.is_some())
    }
}

impl RefusedClass {
    /// Records that an attempt was refused.
    fn end_attempt(&mut self, refused: Refused) {
        if self.help.take().is_some() {
            self.useless = refused.useless;
        }
        self.revision = self.revision.max(refused.revision);
        self.refused_at = refused.now;
        self.together_since.get_or_insert(refused.now);
    }

    /// Follows a change of a sleeping entry's position.
    pub(super) fn reposition(&mut self, old: &QueuePosition, new: &QueuePosition) {
        if self.asleep.remove(old) {
            self.asleep.insert(new.clone());
        }
    }
}
