//! What one kind's task tells, and to whom.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::News;
use super::anew::Fresh;
use super::health::{KindHealth, OwnHealth};
use super::resource::Resource;
use crate::objects::{Change, Delta, Fault, Kept, Kind};

/// How many complaints are remembered, so that each is said once.
const REMEMBERED: usize = 1000;

/// Counts kinds that have not had their first list.
#[derive(Debug)]
pub(super) struct FirstLists(AtomicUsize);

impl FirstLists {
    pub(super) fn new(kinds: usize) -> Self {
        Self(AtomicUsize::new(kinds))
    }
}

/// Where one kind's task tells what it sees.
pub(super) struct Sink<T> {
    sender: mpsc::Sender<News>,
    wrap: fn(Delta<T>) -> Change,
    health: OwnHealth,
    first: Arc<FirstLists>,
    fresh: Fresh,
    complaints: HashSet<String>,
}

impl<T: Kept> Sink<T> {
    pub(super) fn new(
        sender: mpsc::Sender<News>,
        wrap: fn(Delta<T>) -> Change,
        health: OwnHealth,
        first: Arc<FirstLists>,
        fresh: Fresh,
    ) -> Self {
        Self { sender, wrap, health, first, fresh, complaints: HashSet::new() }
    }

    pub(super) fn note<R>(&self, note: impl FnOnce(&mut KindHealth) -> R) -> R {
        self.health.note(note)
    }

    /// Tells a change.
    pub(super) async fn tell(&self, delta: Delta<T>) {
        // Without a receiver the whole task ends.
        let _ = self.sender.send(News::Change((self.wrap)(delta))).await;
    }

    /// Tells the whole list, which began then.
    pub(super) async fn tell_all(&self, kind: &Kind, all: Vec<Arc<T>>, begun: Instant) {
        self.tell(Delta::All(kind.clone(), all)).await;
        if let Some(at) = self.fresh.note(begun) {
            let _ = self.sender.send(News::Fresh(at)).await;
        }
        self.mark_synced().await;
    }

    /// The first list was told, or there is none.
    pub(super) async fn mark_synced(&self) {
        if self.note(|health| std::mem::replace(&mut health.is_synced, true)) {
            return;
        }
        if self.first.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = self.sender.send(News::Synced).await;
        }
    }

    /// The server said up to which version it has told all.
    pub(super) fn heard(&self, version: &str) {
        self.note(|health| {
            health.heard = Some(Instant::now());
            if !version.is_empty() {
                version.clone_into(&mut health.version);
            }
            if health.problem.take().is_some() {
                health.is_forbidden = false;
                tracing::info!(kind = %health.kind, "the watch goes on");
            }
        });
    }

    /// Counts what was wrong with an object, and says it once.
    pub(super) fn complain(&mut self, resource: &Resource, object: &str, faults: Vec<Fault>) {
        self.note(|health| health.faults += faults.len() as u64);
        for Fault(fault) in faults {
            let text = format!("{object}: {fault}");
            if self.is_new(text) {
                tracing::warn!(kind = %resource.kind, object, fault, "a field was not understood");
            }
        }
    }

    /// Counts an object that cannot be read, and says it once.
    pub(super) fn pass_over(&mut self, resource: &Resource, object: &str, why: &str) {
        self.note(|health| health.passed_over += 1);
        if self.is_new(format!("{object}: {why}")) {
            tracing::warn!(
                kind = %resource.kind, object, error = why,
                "an object cannot be read and is passed over"
            );
        }
    }

    fn is_new(&mut self, complaint: String) -> bool {
        if self.complaints.len() >= REMEMBERED {
            self.complaints.clear();
        }
        self.complaints.insert(complaint)
    }
}
