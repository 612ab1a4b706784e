//! Lists on demand, for callers that need all writes before some instant.
//!
//! A watch may lag, be half-open, or hold events from before the process was paused, without any
//! sign of it. A list that starts later contains all earlier writes.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::objects::Kind;

/// Kinds with lists on demand: they record the use of devices, and a scheduler itself writes them.
const KINDS: [&str; 2] = ["Pod", "ResourceClaim"];

/// Start of the last delivered list of each kind.
type ListStarts = Arc<Mutex<[Option<Instant>; KINDS.len()]>>;

/// Requests lists of pods and claims that started at some instant or later. Clones share their
/// requests. A value made by `default` has no watches.
#[derive(Clone, Debug, Default)]
pub struct Relist {
    wanted: watch::Sender<Option<Instant>>,
    delivered: ListStarts,
}

impl Relist {
    /// Requests a new list of each of these kinds, unless its last list started at `at` or later.
    ///
    /// [`WatchEvent::FreshAsOf`](super::WatchEvent::FreshAsOf) follows when all have been sent. If
    /// they were sent before the call, nothing is listed and no event repeated. A later request
    /// includes an earlier one. An instant in the future is waited for.
    pub fn not_older_than(&self, at: Instant) {
        self.wanted.send_if_modified(|wanted| {
            let is_later = *wanted < Some(at);
            if is_later {
                *wanted = Some(at);
            }
            is_later
        });
    }

    /// The latest requested instant.
    pub fn requested(&self) -> Option<Instant> {
        *self.wanted.borrow()
    }

    /// The parts for the task of one kind.
    pub(super) fn for_kind(&self, kind: &Kind) -> (RelistRequests, Freshness) {
        let place = KINDS.iter().position(|known| *known == kind.kind);
        let wanted = place.map(|_| self.wanted.subscribe());
        (
            RelistRequests { wanted, begun: None },
            Freshness { place, delivered: Arc::clone(&self.delivered) },
        )
    }

    /// The parts for a kind without lists on demand.
    pub(super) fn for_other_kinds() -> (RelistRequests, Freshness) {
        (
            RelistRequests { wanted: None, begun: None },
            Freshness { place: None, delivered: ListStarts::default() },
        )
    }
}

/// The requests for one kind.
#[derive(Debug)]
pub(super) struct RelistRequests {
    wanted: Option<watch::Receiver<Option<Instant>>>,
    /// Start of the last delivered list.
    begun: Option<Instant>,
}

impl RelistRequests {
    /// Records the start of a list. It answers all earlier requests; if it fails, the list after it
    /// does.
    pub(super) fn record_list_start(&mut self) -> Instant {
        if let Some(wanted) = &mut self.wanted {
            wanted.mark_unchanged();
        }
        Instant::now()
    }

    /// Records that the list that started at `begun` was delivered.
    pub(super) fn record_delivered(&mut self, begun: Instant) {
        self.begun = Some(begun);
    }

    /// Waits until a list newer than the delivered one is wanted.
    pub(super) async fn wait_until_due(&mut self) {
        while !self.wait_if_wanted().await {
            self.wait_for_change().await;
        }
    }

    /// Waits for a new request of a list newer than the delivered one. Requests from before the
    /// start of the last list do not count, so a failed list is not repeated at once.
    pub(super) async fn wait_for_request(&mut self) {
        loop {
            self.wait_for_change().await;
            if self.wait_if_wanted().await {
                return;
            }
        }
    }

    /// Returns whether a newer list is wanted, and waits until its instant has come.
    async fn wait_if_wanted(&mut self) -> bool {
        let wanted = self.wanted.as_mut().and_then(|wanted| *wanted.borrow_and_update());
        let Some(at) = wanted.filter(|at| self.begun < Some(*at)) else { return false };
        sleep_until(at).await;
        true
    }

    async fn wait_for_change(&mut self) {
        let Some(wanted) = &mut self.wanted else { return pending().await };
        if wanted.changed().await.is_err() {
            // No requester is left.
            pending::<()>().await;
        }
    }
}

/// Records for one kind when its last delivered list started.
#[derive(Debug)]
pub(super) struct Freshness {
    place: Option<usize>,
    delivered: ListStarts,
}

impl Freshness {
    /// Records a delivered list. Returns the oldest start among the last lists of all kinds, if
    /// each has one.
    pub(super) fn update(&self, begun: Instant) -> Option<Instant> {
        let place = self.place?;
        let mut delivered = self.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        delivered[place] = Some(begun);
        // `None` is less than any instant.
        delivered.iter().min().copied().flatten()
    }
}
