//! Which events are written and when: equal ones become one with a count, and only so many.
//!
//! Pure: the writer asks what is due and says what came of it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::Instant;

use super::Tone;

/// How many events are written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EventLimits {
    /// Equal events count as one until so long after the last of them. 6 minutes by default, as for
    /// Kubernetes' own components.
    pub window: Duration,
    /// How often the count of a series is written. Once a minute by default.
    pub refresh: Duration,
    /// How many events may be written at once. 100 by default.
    pub burst: u32,
    /// How many a second in the long run, counts of series not among them. 10 by default.
    pub per_second: u32,
}

/// What became of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCounts {
    /// Written, each as an event of its own.
    pub written: u64,
    /// Counted in the series of an equal one.
    pub repeated: u64,
    /// Not written, for there were too many.
    pub dropped: u64,
    /// Writes that the API server refused or did not take.
    pub failed: u64,
}

/// What makes events equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) tone: Tone,
    pub(super) reason: String,
    pub(super) action: String,
    pub(super) note: String,
}

/// An event, once or often.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// What it is about.
    pub(super) regarding: ObjectReference,
    /// Name of the event object.
    pub(super) name: String,
    /// When it was first seen.
    pub(super) first: Timestamp,
    /// When it was last seen.
    pub(super) last: Timestamp,
    /// How often it was seen.
    pub(super) count: i32,
    last_at: Instant,
    /// The count that was written; 0: there is no object yet.
    written: i32,
    written_at: Instant,
    /// Whether it waits to be written or is being written.
    is_due: bool,
}

/// A write that is due.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) key: Arc<Key>,
    pub(super) series: Series,
    /// Whether there is no object yet.
    pub(super) is_new: bool,
}

/// Events of the last minutes.
#[derive(Debug)]
pub(super) struct Recent {
    limits: EventLimits,
    known: HashMap<Arc<Key>, Series>,
    due: VecDeque<Arc<Key>>,
    tokens: f64,
    filled: Instant,
    pub(super) counts: EventCounts,
}

impl Default for EventLimits {
    fn default() -> Self {
        Self {
            window: Duration::from_mins(6),
            refresh: Duration::from_mins(1),
            burst: 100,
            per_second: 10,
        }
    }
}

impl Recent {
    pub(super) fn new(limits: EventLimits, now: Instant) -> Self {
        Self {
            limits,
            known: HashMap::new(),
            due: VecDeque::new(),
            tokens: f64::from(limits.burst),
            filled: now,
            counts: EventCounts::default(),
        }
    }

    /// Takes an event; says whether there is something to write at once.
    pub(super) fn add(
        &mut self,
        key: Key,
        regarding: &ObjectReference,
        time: Timestamp,
        now: Instant,
    ) -> bool {
        if let Some(series) = self.known.get_mut(&key)
            && now.saturating_duration_since(series.last_at) < self.limits.window
        {
            series.count = series.count.saturating_add(1);
            (series.last, series.last_at) = (time, now);
            self.counts.repeated += 1;
            return false;
        }
        if !self.take_token(now) {
            self.counts.dropped += 1;
            return false;
        }
        let key = Arc::new(key);
        let series = Series {
            regarding: regarding.clone(),
            name: object_name(&key.name, time),
            first: time,
            last: time,
            count: 1,
            last_at: now,
            written: 0,
            written_at: now,
            is_due: true,
        };
        self.known.insert(Arc::clone(&key), series);
        self.due.push_back(key);
        true
    }

    fn take_token(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        let filled = self.tokens + passed * f64::from(self.limits.per_second);
        self.tokens = filled.min(f64::from(self.limits.burst));
        self.filled = now;
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }

    /// Looks for series whose count is to be written, and forgets those that have ended. With `is_last`
    /// every count is to be written.
    pub(super) fn refresh(&mut self, now: Instant, is_last: bool) {
        let Self { limits, known, due, .. } = self;
        known.retain(|key, series| {
            let has_ended = now.saturating_duration_since(series.last_at) >= limits.window;
            if series.is_due {
                return true;
            }
            if series.count == series.written {
                return !has_ended;
            }
            let age = now.saturating_duration_since(series.written_at);
            if has_ended || is_last || age >= limits.refresh {
                series.is_due = true;
                due.push_back(Arc::clone(key));
            }
            true
        });
    }

    /// The next write that is due.
    pub(super) fn next(&mut self) -> Option<Due> {
        loop {
            let key = self.due.pop_front()?;
            if let Some(series) = self.known.get(&key) {
                let is_new = series.written == 0;
                return Some(Due { series: series.clone(), is_new, key });
            }
        }
    }

    /// A write was done.
    pub(super) fn written(&mut self, due: &Due, now: Instant) {
        self.counts.written += u64::from(due.is_new);
        if let Some(series) = self.known.get_mut(&due.key) {
            series.is_due = false;
            (series.written, series.written_at) = (due.series.count, now);
        }
    }

    /// A write failed: the next of its kind begins anew.
    pub(super) fn failed(&mut self, due: &Due) {
        self.counts.failed += 1;
        self.known.remove(&due.key);
    }

    /// How many are remembered.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }
}

/// Name of an event object: that of what it is about, and a time.
fn object_name(about: &str, time: Timestamp) -> String {
    // Names are ASCII and have 253 bytes at most.
    let about = about.get(..about.len().min(200)).unwrap_or_default();
    let name = if about.is_empty() { "event" } else { about };
    format!("{}.{:x}", name.trim_end_matches(['.', '-']), time.as_nanosecond())
}
