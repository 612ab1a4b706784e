//! Conditions of pods that wait to be written, in two lanes.
//!
//! Autoscalers act on a pod's first `Unschedulable`. Such conditions, and those with a new reason,
//! are written first. The newest and the oldest take turns: a new pod does not wait for a backlog,
//! and the backlog is written, too. Where only the text has changed, a pod's condition is written
//! once a minute at most, because such texts change with the cluster for every waiting pod.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use octavo_kube_io::objects::PodUid;
use tokio::time::Instant;

use super::keyed_queue::Queue;
use super::status_queue::{StatusWrite, is_urgent};

/// Maximum number of conditions in each lane.
const MAX_CONDITIONS: usize = 100_000;
/// Least time between two writes of a pod's condition that differ in their text only.
const TEXT_INTERVAL: Duration = Duration::from_mins(1);

/// The conditions that wait.
#[derive(Debug)]
pub(super) struct ConditionQueue {
    urgent: Queue<PodUid, StatusWrite>,
    takes_newest: bool,
    texts: HashMap<PodUid, (Instant, StatusWrite)>,
    /// The keys of `texts`, by the time when they are due.
    due: BTreeSet<(Instant, PodUid)>,
    /// When the pods' conditions were written, in two generations of [`TEXT_INTERVAL`].
    written: [HashMap<PodUid, Instant>; 2],
    rotate_at: Instant,
}

impl ConditionQueue {
    pub(super) fn new() -> Self {
        Self {
            urgent: Queue::new(MAX_CONDITIONS),
            takes_newest: true,
            texts: HashMap::new(),
            due: BTreeSet::new(),
            written: [HashMap::new(), HashMap::new()],
            rotate_at: Instant::now() + TEXT_INTERVAL,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.urgent.len() + self.texts.len()
    }

    /// Puts a condition in, replacing an older one. `is_urgent`: its status or reason is not the
    /// observed one. `false` if the lane is full.
    pub(super) fn put(&mut self, pod: &PodUid, write: StatusWrite, is_urgent: bool) -> bool {
        if is_urgent || self.urgent.contains(pod) {
            self.remove_text(pod);
            return self.urgent.put(pod.clone(), write);
        }
        if let Some((_, old)) = self.texts.get_mut(pod) {
            *old = write;
            return true;
        }
        if self.texts.len() >= MAX_CONDITIONS {
            return false;
        }
        let written = self.written.iter().find_map(|written| written.get(pod));
        let at = written.map_or_else(Instant::now, |at| *at + TEXT_INTERVAL);
        self.texts.insert(pod.clone(), (at, write));
        self.due.insert((at, pod.clone()));
        true
    }

    /// Puts a failed write back into its lane, unless a newer one waits. `false` if the lane is full.
    pub(super) fn put_back(&mut self, pod: &PodUid, write: StatusWrite) -> bool {
        if self.texts.contains_key(pod) || self.urgent.contains(pod) {
            return true;
        }
        let is_urgent = match &write {
            StatusWrite::Condition { status_text, seen, .. } => {
                is_urgent(status_text, seen.as_ref())
            }
            _ => false,
        };
        self.put(pod, write, is_urgent)
    }

    pub(super) fn remove(&mut self, pod: &PodUid) {
        self.urgent.remove(pod);
        self.remove_text(pod);
    }

    fn remove_text(&mut self, pod: &PodUid) {
        if let Some((at, _)) = self.texts.remove(pod) {
            self.due.remove(&(at, pod.clone()));
        }
    }

    /// When the next condition is due; `None` if none waits.
    pub(super) fn next_at(&self, now: Instant) -> Option<Instant> {
        if self.urgent.len() > 0 {
            return Some(now);
        }
        self.due.first().map(|(at, _)| *at)
    }

    /// The next condition that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<StatusWrite> {
        if now >= self.rotate_at {
            self.written[1] = std::mem::take(&mut self.written[0]);
            self.rotate_at = now + TEXT_INTERVAL;
        }
        let newest = if self.takes_newest { self.urgent.pop_last() } else { None };
        self.takes_newest = !self.takes_newest;
        let write = newest.or_else(|| self.urgent.pop(|_| true)).or_else(|| {
            let (_, pod) = self.due.first().filter(|(at, _)| *at <= now)?.clone();
            let (at, write) = self.texts.remove(&pod)?;
            self.due.remove(&(at, pod));
            Some(write)
        })?;
        if let StatusWrite::Condition { pod, .. } = &write {
            self.written[0].insert(pod.uid.clone(), now);
        }
        Some(write)
    }
}
