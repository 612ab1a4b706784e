//! Sends the events of one kind's task.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::WatchEvent;
use super::health::{KindHealth, KindHealthHandle};
use super::relist::Freshness;
use super::resource::Resource;
use crate::objects::{Change, Delta, Fault, Kind, WatchedType};

/// Limit of remembered warnings, so that each is logged once.
const MAX_REMEMBERED_WARNINGS: usize = 1000;

/// Counts the kinds whose first list is pending.
#[derive(Debug)]
pub(super) struct PendingFirstLists(AtomicUsize);

impl PendingFirstLists {
    pub(super) fn new(kinds: usize) -> Self {
        Self(AtomicUsize::new(kinds))
    }
}

/// Sends the events of one kind's task and keeps its health.
pub(super) struct KindSender<T> {
    sender: mpsc::Sender<WatchEvent>,
    wrap: fn(Delta<T>) -> Change,
    health: KindHealthHandle,
    first: Arc<PendingFirstLists>,
    freshness: Freshness,
    warnings: HashSet<String>,
}

impl<T: WatchedType> KindSender<T> {
    pub(super) fn new(
        sender: mpsc::Sender<WatchEvent>,
        wrap: fn(Delta<T>) -> Change,
        health: KindHealthHandle,
        first: Arc<PendingFirstLists>,
        freshness: Freshness,
    ) -> Self {
        Self { sender, wrap, health, first, freshness, warnings: HashSet::new() }
    }

    pub(super) fn update<R>(&self, update: impl FnOnce(&mut KindHealth) -> R) -> R {
        self.health.update(update)
    }

    /// Sends a change.
    pub(super) async fn send(&self, delta: Delta<T>) {
        // If the receiver is gone, the whole task ends.
        let _ = self.sender.send(WatchEvent::Change((self.wrap)(delta))).await;
    }

    /// Sends the whole list that started at `begun`.
    pub(super) async fn send_list(&self, kind: &Kind, all: Vec<Arc<T>>, begun: Instant) {
        self.send(Delta::Replace(kind.clone(), all)).await;
        if let Some(at) = self.freshness.update(begun) {
            let _ = self.sender.send(WatchEvent::FreshAsOf(at)).await;
        }
        self.mark_synced().await;
    }

    /// Records the first list, or that there is none.
    pub(super) async fn mark_synced(&self) {
        if self.update(|health| std::mem::replace(&mut health.is_synced, true)) {
            return;
        }
        if self.first.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = self.sender.send(WatchEvent::Synced).await;
        }
    }

    /// Records that the server has sent everything up to a version.
    pub(super) fn record_contact(&self, version: &str) {
        self.update(|health| {
            health.last_contact = Some(Instant::now());
            if !version.is_empty() {
                version.clone_into(&mut health.version);
            }
            if health.problem.take().is_some() {
                health.is_forbidden = false;
                tracing::info!(kind = %health.kind, "the watch has resumed");
            }
        });
    }

    /// Counts the faults of an object, and logs each once.
    pub(super) fn report_faults(&mut self, resource: &Resource, object: &str, faults: Vec<Fault>) {
        self.update(|health| health.faults += faults.len() as u64);
        for Fault(fault) in faults {
            let text = format!("{object}: {fault}");
            if self.is_new(text) {
                tracing::warn!(kind = %resource.kind, object, fault, "a field has no meaning in this version");
            }
        }
    }

    /// Counts an unreadable object, and logs it once.
    pub(super) fn skip_object(&mut self, resource: &Resource, object: &str, why: &str) {
        self.update(|health| health.skipped += 1);
        if self.is_new(format!("{object}: {why}")) {
            tracing::warn!(
                kind = %resource.kind, object, error = why,
                "an object cannot be read and is skipped"
            );
        }
    }

    fn is_new(&mut self, warning: String) -> bool {
        if self.warnings.len() >= MAX_REMEMBERED_WARNINGS {
            self.warnings.clear();
        }
        self.warnings.insert(warning)
    }
}
