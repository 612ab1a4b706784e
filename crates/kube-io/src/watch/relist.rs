//! Lists that are had anew because somebody must know what others wrote before a moment.
//!
//! A watch may lag, be half-open, or hold what was buffered before the process was stopped, and nothing
//! in it says so. A list that begins later tells all that was written before it began.

use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::objects::Kind;

/// Kinds that can be asked for: those that say who has what, and that a scheduler itself writes.
const KINDS: [&str; 2] = ["Pod", "ResourceClaim"];

/// When the last lists began that were told, by kind.
type ListStarts = Arc<Mutex<[Option<Instant>; KINDS.len()]>>;

/// Asks for lists of pods and claims that are not older than a moment. Clones are the same; of one that
/// is made by itself nobody hears.
#[derive(Clone, Debug, Default)]
pub struct Relist {
    wanted: watch::Sender<Option<Instant>>,
    delivered: ListStarts,
}

impl Relist {
    /// Asks that each of these kinds be listed again unless its last list began at that moment or later.
    /// When all were told, [`WatchEvent::FreshAsOf`](super::WatchEvent::FreshAsOf) says so; where they were told already,
    /// nothing is listed and nothing said again. What was asked for earlier is contained in what is
    /// asked for later. A moment that lies ahead is waited for.
    pub fn not_older_than(&self, at: Instant) {
        self.wanted.send_if_modified(|wanted| {
            let is_later = *wanted < Some(at);
            if is_later {
                *wanted = Some(at);
            }
            is_later
        });
    }

    /// The latest moment that was asked for.
    pub fn requested(&self) -> Option<Instant> {
        *self.wanted.borrow()
    }

    /// The part of the task of one kind.
    pub(super) fn for_kind(&self, kind: &Kind) -> (RelistRequests, Freshness) {
        let place = KINDS.iter().position(|known| *known == kind.kind);
        let wanted = place.map(|_| self.wanted.subscribe());
        (
            RelistRequests { wanted, begun: None },
            Freshness { place, delivered: Arc::clone(&self.delivered) },
        )
    }

    /// The part of a kind that cannot be asked for.
    pub(super) fn for_other_kinds() -> (RelistRequests, Freshness) {
        (
            RelistRequests { wanted: None, begun: None },
            Freshness { place: None, delivered: ListStarts::default() },
        )
    }
}

/// What is asked of one kind.
#[derive(Debug)]
pub(super) struct RelistRequests {
    wanted: Option<watch::Receiver<Option<Instant>>>,
    /// When the last list began that was told.
    begun: Option<Instant>,
}

impl RelistRequests {
    /// A list begins now. What was asked before has its answer in it, or in one that follows it because
    /// it failed.
    pub(super) fn record_list_start(&mut self) -> Instant {
        if let Some(wanted) = &mut self.wanted {
            wanted.mark_unchanged();
        }
        Instant::now()
    }

    /// The list that began then was told.
    pub(super) fn record_delivered(&mut self, begun: Instant) {
        self.begun = Some(begun);
    }

    /// Waits until a newer list is wanted than was told.
    pub(super) async fn wait_until_due(&mut self) {
        while !self.wait_if_wanted().await {
            self.wait_for_change().await;
        }
    }

    /// Waits until somebody asks for a newer list than was told; what was asked before the last list began
    /// does not count. So a list that fails is not had again at once for the same wish.
    pub(super) async fn wait_for_request(&mut self) {
        loop {
            self.wait_for_change().await;
            if self.wait_if_wanted().await {
                return;
            }
        }
    }

    /// Whether a newer list is wanted than was told. What lies ahead is waited for.
    async fn wait_if_wanted(&mut self) -> bool {
        let wanted = self.wanted.as_mut().and_then(|wanted| *wanted.borrow_and_update());
        let Some(at) = wanted.filter(|at| self.begun < Some(*at)) else { return false };
        sleep_until(at).await;
        true
    }

    async fn wait_for_change(&mut self) {
        let Some(wanted) = &mut self.wanted else { return pending().await };
        if wanted.changed().await.is_err() {
            // Nobody is left who could ask.
            pending::<()>().await;
        }
    }
}

/// Where one kind says that its list was told.
#[derive(Debug)]
pub(super) struct Freshness {
    place: Option<usize>,
    delivered: ListStarts,
}

impl Freshness {
    /// A list that began then was told. Says when the oldest of the last lists of all kinds began, if all
    /// have had one.
    pub(super) fn update(&self, begun: Instant) -> Option<Instant> {
        let place = self.place?;
        let mut delivered = self.delivered.lock().unwrap_or_else(PoisonError::into_inner);
        delivered[place] = Some(begun);
        // `None` is less than any moment.
        delivered.iter().min().copied().flatten()
    }
}
