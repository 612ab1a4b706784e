//! The domains that are to be planned, by UID: when, which run, and which failed.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use octavo_kube_io::Backoff;
use tokio::time::Instant;

/// Delays after failures.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Domains whose plans are carried out at the same time.
const MAX_RUNNING: usize = 16;

/// How a plan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// All its writes were done.
    Done,
    /// Writes are left for later, by the limit of their rate. Whether they fail is not known yet.
    Deferred,
    /// A write was not done.
    Failed,
}

/// Domains by due time. A domain runs once at a time.
#[derive(Debug, Default)]
pub(super) struct Queue {
    due: BTreeMap<String, Instant>,
    running: BTreeSet<String>,
    failures: BTreeMap<String, Backoff>,
}

impl Queue {
    /// Plans a domain at a time, or earlier if that is due already.
    pub(super) fn mark(&mut self, uid: &str, at: Instant) {
        let due = self.due.entry(uid.to_owned()).or_insert(at);
        *due = (*due).min(at);
    }

    /// Takes a domain that is due and does not run; the one that waits longest.
    pub(super) fn take(&mut self, now: Instant) -> Option<String> {
        if self.running.len() >= MAX_RUNNING {
            return None;
        }
        let (at, uid) = self.waiting().min()?;
        if at > now {
            return None;
        }
        let uid = uid.to_owned();
        self.due.remove(&uid);
        self.running.insert(uid.clone());
        Some(uid)
    }

    /// A plan has ended. A failed one is tried again with growing delays, or at the next change. Returns how often it has failed
    /// in a row.
    pub(super) fn done(&mut self, uid: &str, outcome: Outcome, now: Instant) -> u32 {
        self.running.remove(uid);
        match outcome {
            Outcome::Done => drop(self.failures.remove(uid)),
            Outcome::Deferred => {}
            Outcome::Failed => {
                let backoff = self.failures.entry(uid.to_owned());
                let backoff = backoff.or_insert_with(|| Backoff::new(FIRST_DELAY, MAX_DELAY));
                let at = now + backoff.next_delay();
                self.mark(uid, at);
            }
        }
        self.failures.get(uid).map_or(0, Backoff::failures)
    }

    /// When the next domain is due that can run; `None`: not before a change or the end of a run.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let is_full = self.running.len() >= MAX_RUNNING;
        if is_full { None } else { self.waiting().map(|(at, _)| at).min() }
    }

    /// Whether a plan is being carried out.
    pub(super) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    fn waiting(&self) -> impl Iterator<Item = (Instant, &str)> {
        let waiting = self.due.iter().filter(|(uid, _)| !self.running.contains(*uid));
        waiting.map(|(uid, at)| (*at, uid.as_str()))
    }
}
