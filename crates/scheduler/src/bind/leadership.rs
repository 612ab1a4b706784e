//! Whether, since when and for how long this program may write.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long this program may still believe to be the leader. Asked before every write.
#[derive(Clone)]
pub struct Leadership(Arc<dyn Fn() -> Option<TermRemaining> + Send + Sync>);

/// Leadership that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TermRemaining {
    /// Time that is time_left.
    pub time_left: Duration,
    /// Since when it is held without a gap: what was read before may lack what another leader wrote.
    pub since: Instant,
}

impl Leadership {
    /// Asks `held`: what may be believed of the lease, `None` without one.
    pub fn new(held: impl Fn() -> Option<TermRemaining> + Send + Sync + 'static) -> Self {
        Self(Arc::new(held))
    }

    /// For a scheduler that is alone by other means, from now on: leader election is off.
    pub fn always() -> Self {
        let since = Instant::now();
        Self::new(move || Some(TermRemaining { time_left: Duration::MAX, since }))
    }

    /// The same for those who write: theirs only while the gate is open for it.
    pub fn gated(&self) -> (Self, FencingGate) {
        let gate = FencingGate::default();
        let (whole, opened) = (self.clone(), gate.clone());
        let held = move || whole.held().filter(|held| opened.is_open_for(held.since));
        (Self::new(held), gate)
    }

    /// Time that is left; `None`: not the leader.
    pub fn remaining(&self) -> Option<Duration> {
        self.held().map(|held| held.time_left)
    }

    /// Since when this program leads without a gap; `None`: not the leader.
    pub fn since(&self) -> Option<Instant> {
        self.held().map(|held| held.since)
    }

    fn held(&self) -> Option<TermRemaining> {
        (self.0)().filter(|held| !held.time_left.is_zero())
    }
}

/// Lets be written what was decided in one leadership, and nothing that was decided in an earlier one:
/// devices that it gives away may be another's by now. Closed at first. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct FencingGate(Arc<Mutex<Option<Instant>>>);

impl FencingGate {
    /// Opens it for the leadership that is held since then, and for no other; `None`: closes it.
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
