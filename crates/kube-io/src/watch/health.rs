//! How the watches fare: what metrics and readiness are made of.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::objects::Kind;

/// How the watch of a kind fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KindHealth {
    /// The kind; of one that may or may not be served the newest version that was asked for, until
    /// one is found.
    pub kind: Kind,
    /// Whether its first list was told.
    pub is_synced: bool,
    /// Whether the server has it; `true` until it says otherwise.
    pub is_served: bool,
    /// `resourceVersion` up to which all was told.
    pub version: String,
    /// When the server was last contact to be up to date: by a list, a change or a bookmark, of which
    /// it sends one a minute. `None`: never.
    pub last_contact: Option<Instant>,
    /// How many lists there were: more than one tells of gaps, or of somebody who asked for them.
    pub lists: u64,
    /// How many changes there were.
    pub changes: u64,
    /// How many objects were passed over because they could not be read.
    pub skipped: u64,
    /// How many fields had no meaning for this version and were taken for something else.
    pub faults: u64,
    /// How many requests failed. Ends of watches and expired versions are no failures.
    pub failures: u64,
    /// What keeps it from being watched now, and what to do.
    pub problem: Option<String>,
    /// Whether that is for lack of rights.
    pub is_forbidden: bool,
}

/// How all watches fare. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct WatchHealth(Arc<Mutex<Vec<Arc<Mutex<KindHealth>>>>>);

impl WatchHealth {
    /// Each kind by name.
    pub fn kinds(&self) -> BTreeMap<Kind, KindHealth> {
        let kinds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kinds = kinds.iter().map(|kind| {
            let kind = kind.lock().unwrap_or_else(PoisonError::into_inner).clone();
            (kind.kind.clone(), kind)
        });
        kinds.collect()
    }

    /// Whether every kind has had its first list.
    pub fn is_synced(&self) -> bool {
        self.kinds().values().all(|kind| kind.is_synced)
    }

    /// How long ago the kind was contact of that is furthest behind, of those that are served and may be
    /// read; `None`: one was never contact of.
    pub fn staleness(&self, now: Instant) -> Option<Duration> {
        let kinds = self.kinds();
        let mut kinds = kinds.values().filter(|kind| kind.is_served && !kind.is_forbidden);
        kinds.try_fold(Duration::ZERO, |most, kind| {
            Some(most.max(now.saturating_duration_since(kind.last_contact?)))
        })
    }

    /// What stands in the way, by kind.
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
    /// Notes something.
    pub(super) fn update<R>(&self, update: impl FnOnce(&mut KindHealth) -> R) -> R {
        update(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
