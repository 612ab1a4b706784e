//! Whether this process may write, since when, and for how long.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long this process still holds the lease. Read before every write.
#[derive(Clone)]
pub struct Leadership(Arc<dyn Fn() -> Option<TermRemaining> + Send + Sync>);

/// The lease term in which this process leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermRemaining {
    /// Time until the lease must be assumed lost.
    pub time_left: Duration,
    /// Start of the uninterrupted term. Data read earlier may lack another leader's writes.
    pub since: Instant,
}

impl Leadership {
    /// Uses `held` to read the lease; it returns `None` without one.
    pub fn new(held: impl Fn() -> Option<TermRemaining> + Send + Sync + 'static) -> Self {
        Self(Arc::new(held))
    }

    /// Leadership without a lease, from now on: leader election is off.
    pub fn always() -> Self {
        let since = Instant::now();
        Self::new(move || Some(TermRemaining { time_left: Duration::MAX, since }))
    }

    /// The same leadership for writers, valid only while the gate is open for its term.
    pub fn gated(&self) -> (Self, FencingGate) {
        let gate = FencingGate::default();
        let (whole, opened) = (self.clone(), gate.clone());
        let held = move || whole.held().filter(|held| opened.is_open_for(held.since));
        (Self::new(held), gate)
    }

    /// Time that is left; `None` if not the leader.
    pub fn remaining(&self) -> Option<Duration> {
        self.held().map(|held| held.time_left)
    }

    /// Start of the uninterrupted term; `None` if not the leader.
    pub fn since(&self) -> Option<Instant> {
        self.held().map(|held| held.since)
    }

    fn held(&self) -> Option<TermRemaining> {
        (self.0)().filter(|held| !held.time_left.is_zero())
    }
}

/// A fencing gate. It lets writers send only what was decided in the current lease term. A decision
/// of an earlier term may allocate devices that another leader has allocated since. Closed at
/// first. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct FencingGate(Arc<Mutex<Option<Instant>>>);

impl FencingGate {
    /// Opens the gate for the term that began at `since`, and for no other. `None` closes it.
    pub fn open_for(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    fn is_open_for(&self, since: Instant) -> bool {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) == Some(since)
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.held()).finish()
    }
}
