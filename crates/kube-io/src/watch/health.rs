//! The health of watches, for metrics and readiness.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::objects::Kind;

/// The health of one kind's watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindHealth {
    /// The kind. For an optional kind it is the preferred version until a served one is found.
    pub kind: Kind,
    /// Whether its first list was sent.
    pub is_synced: bool,
    /// Whether the server serves it; `true` until the server denies it.
    pub is_served: bool,
    /// `resourceVersion` up to which all changes were sent.
    pub version: String,
    /// When the server last confirmed that the watch is current: by a list, a change or a bookmark
    /// (one a minute). `None` before the first.
    pub last_contact: Option<Instant>,
    /// Number of lists. More than one means gaps or requested lists.
    pub lists: u64,
    /// Number of changes.
    pub changes: u64,
    /// Number of unreadable objects that were skipped.
    pub skipped: u64,
    /// Number of fields that had no meaning in this version and were replaced.
    pub faults: u64,
    /// Number of failed requests. Ends of watches and expired versions are not failures.
    pub failures: u64,
    /// The current problem and its remedy.
    pub problem: Option<String>,
    /// Whether the problem is missing permission.
    pub is_forbidden: bool,
}

/// The health of all watches. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct WatchHealth(Arc<Mutex<Vec<Arc<Mutex<KindHealth>>>>>);

impl WatchHealth {
    /// The health of each kind.
    pub fn kinds(&self) -> BTreeMap<Kind, KindHealth> {
        let kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = kinds.iter().map(|kind| {
            let kind = kind.lock().unwrap_or_else(PoisonError::into_inner).clone();
            (kind.kind.clone(), kind)
        });
        kinds.collect()
    }

    /// Whether the first lists of all kinds were sent.
    pub fn is_synced(&self) -> bool {
        self.kinds().values().all(|kind| kind.is_synced)
    }

    /// Time since the oldest last contact among kinds that are served and not forbidden; `None` if
    /// one had no contact.
    pub fn staleness(&self, now: Instant) -> Option<Duration> {
        let kinds = self.kinds();
        let mut kinds = kinds.values().filter(|kind| kind.is_served && !kind.is_forbidden);
        kinds.try_fold(Duration::ZERO, |most, kind| {
            Some(most.max(now.saturating_duration_since(kind.last_contact?)))
        })
    }

    /// The current problems, by kind.
    pub fn problems(&self) -> Vec<(Kind, String)> {
        let kinds = self.kinds().into_iter();
        kinds.filter_map(|(kind, health)| Some((kind, health.problem?))).collect()
    }

    pub(super) fn of(&self, kind: &Kind) -> KindHealthHandle {
        let own = Arc::new(Mutex::new(KindHealth {
            kind: kind.clone(),
            is_served: true,
            ..KindHealth::default()
        }));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&own));
        KindHealthHandle(own)
    }
}

/// The health of one kind, for its task.
#[derive(Debug)]
pub(super) struct KindHealthHandle(Arc<Mutex<KindHealth>>);

impl KindHealthHandle {
    /// Updates the health.
    pub(super) fn update<R>(&self, update: impl FnOnce(&mut KindHealth) -> R) -> R {
        update(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
