//! Updates that wait to be written: the newest of each object, in the order of their first arrival,
//! within bounds.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use octavo_api::names::OCTAVO_API_VERSION;
use octavo_kube_io::objects::{Kind, ObjectName, ScheduledCondition};
use tokio::time::Instant;

use super::condition_queue::ConditionQueue;
use super::keyed_queue::Queue;
use super::{GroupPhase, GroupStatus, ScheduledEvents, StatusText, StatusUpdate};
use crate::bind::PodRef;
use crate::metrics::Metrics;

/// Bounds of the queues.
const MAX_STATUSES: usize = 20_000;
const MAX_EVENTS: usize = 2000;
/// The bound on events where each bound pod gets one.
const MAX_EVENTS_OF_ALL_PODS: usize = 100_000;
/// With more events queued, those of bound pods are dropped: there is one per pod, and the pod
/// itself shows its node.
const MAX_EVENTS_FOR_BOUND_PODS: usize = 64;
/// How long an event is not repeated, and how many events that applies to.
const EVENT_DEDUP_TIME: Duration = Duration::from_mins(10);
const MAX_REMEMBERED_EVENTS: usize = 10_000;
/// Least time between two status writes of a gang.
const GROUP_STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// Something to write.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum StatusWrite {
    Condition { pod: PodRef, status_text: StatusText, seen: Option<ScheduledCondition> },
    Group(GroupStatus),
    Policy { name: Arc<str>, generation: i64, error: Option<StatusText> },
    Event(EventWrite),
}

/// An event to write.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EventWrite {
    pub(super) kind: Kind,
    pub(super) name: ObjectName,
    pub(super) uid: Arc<str>,
    pub(super) is_warning: bool,
    pub(super) reason: &'static str,
    /// What it is about. An object has one event per subject within [`EVENT_DEDUP_TIME`].
    pub(super) about: &'static str,
    pub(super) note: String,
}

/// When the next write is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Now,
    At(Instant),
    Never,
}

/// Everything that waits.
#[derive(Debug)]
pub(super) struct StatusQueue {
    metrics: Metrics,
    scheduled_events: ScheduledEvents,
    conditions: ConditionQueue,
    groups: Queue<Arc<str>, GroupStatus>,
    policies: Queue<Arc<str>, StatusWrite>,
    events: Queue<(Arc<str>, &'static str), EventWrite>,
    /// When a gang's status may be written next.
    next_group_write: HashMap<Arc<str>, Instant>,
    /// Recent events in two generations. The older one is dropped as a whole.
    recent_events: [HashSet<(Arc<str>, &'static str)>; 2],
    rotate_at: Instant,
}

impl StatusQueue {
    pub(super) fn new(metrics: Metrics, scheduled_events: ScheduledEvents) -> Self {
        let max_events = match scheduled_events {
            ScheduledEvents::BestEffort => MAX_EVENTS,
            ScheduledEvents::All => MAX_EVENTS_OF_ALL_PODS,
        };
        Self {
            metrics,
            scheduled_events,
            conditions: ConditionQueue::new(),
            groups: Queue::new(MAX_STATUSES),
            policies: Queue::new(MAX_STATUSES),
            events: Queue::new(max_events),
            next_group_write: HashMap::new(),
            recent_events: [HashSet::new(), HashSet::new()],
            rotate_at: Instant::now() + EVENT_DEDUP_TIME,
        }
    }

    /// Queues an update.
    pub(super) fn take(&mut self, report: StatusUpdate) {
        match report {
            StatusUpdate::PodUnschedulable { pod, status_text, seen } => {
                self.pod_unschedulable(pod, status_text, seen);
            }
            StatusUpdate::PodBound { pod, node, loan } => {
                self.conditions.remove(&pod.uid);
                if self.scheduled_events == ScheduledEvents::All
                    || loan.is_some()
                    || self.events.len() < MAX_EVENTS_FOR_BOUND_PODS
                {
                    let loan = loan.map_or_else(String::new, |loan| format!("; it {loan}"));
                    let note = format!("bound to node {node}{loan}");
                    self.event(pod_event(&pod, false, "Scheduled", note));
                }
            }
            StatusUpdate::PodSettled { uid } => self.conditions.remove(&uid),
            StatusUpdate::PodEvicted { pod, status_text } => {
                self.event(pod_event(&pod, false, status_text.reason, status_text.message));
            }
            StatusUpdate::PodNotRepaired { pod, status_text } => {
                self.event(pod_event(&pod, true, status_text.reason, status_text.message));
            }
            StatusUpdate::Group(report) => self.group(report),
            StatusUpdate::Policy { name, generation, error } => {
                if let Some(error) = &error {
                    self.event(EventWrite {
                        kind: Kind::new(OCTAVO_API_VERSION, "PlacementPolicy"),
                        name: ObjectName::new("", Arc::clone(&name)),
                        uid: Arc::clone(&name),
                        is_warning: true,
                        reason: error.reason,
                        about: error.reason,
                        note: error.message.clone(),
                    });
                }
                let key = Arc::clone(&name);
                if !self.policies.put(key, StatusWrite::Policy { name, generation, error }) {
                    self.metrics.dropped("status");
                }
            }
        }
    }

    fn pod_unschedulable(
        &mut self,
        pod: PodRef,
        status_text: StatusText,
        seen: Option<ScheduledCondition>,
    ) {
        let is_same = |seen: &ScheduledCondition| {
            !seen.is_true
                && seen.reason == status_text.reason
                && seen.message == status_text.message
        };
        if seen.as_ref().is_some_and(is_same) {
            // This also removes a queued update that is outdated.
            self.conditions.remove(&pod.uid);
            return;
        }
        let is_urgent = is_urgent(&status_text, seen.as_ref());
        if is_urgent {
            // The reason of kube-scheduler's events, which people and tools look for.
            let note = format!("{}: {}", status_text.reason, status_text.message);
            let event = pod_event(&pod, true, "FailedScheduling", note);
            self.event(EventWrite { about: status_text.reason, ..event });
        }
        let key = pod.uid.clone();
        let write = StatusWrite::Condition { pod, status_text, seen };
        if !self.conditions.put(&key, write, is_urgent) {
            self.metrics.dropped("condition");
        }
    }

    fn group(&mut self, report: GroupStatus) {
        let waits = matches!(report.phase, GroupPhase::Waiting | GroupPhase::Repairing);
        self.event(EventWrite {
            kind: report.kind.clone(),
            name: report.name.clone(),
            uid: Arc::clone(&report.uid),
            is_warning: waits,
            reason: report.status_text.reason,
            about: report.status_text.reason,
            note: report.status_text.message.clone(),
        });
        if has_status(&report.kind) && !self.groups.put(Arc::clone(&report.uid), report) {
            self.metrics.dropped("status");
        }
    }

    fn event(&mut self, event: EventWrite) {
        let key = (Arc::clone(&event.uid), event.about);
        if self.recent_events.iter().any(|recent| recent.contains(&key)) {
            return;
        }
        let now = Instant::now();
        if now >= self.rotate_at || self.recent_events[0].len() >= MAX_REMEMBERED_EVENTS {
            self.recent_events[1] = std::mem::take(&mut self.recent_events[0]);
            self.rotate_at = now + EVENT_DEDUP_TIME;
        }
        self.recent_events[0].insert(key.clone());
        if !self.events.put(key, event) {
            self.metrics.dropped("event");
        }
    }

    /// When the next write is due.
    pub(super) fn due(&mut self) -> Due {
        let now = Instant::now();
        self.next_group_write.retain(|_, next_write| *next_write > now);
        self.metrics.reports(
            self.conditions.len(),
            self.groups.len() + self.policies.len(),
            self.events.len(),
        );
        if self.policies.len() + self.events.len() > 0 {
            return Due::Now;
        }
        let next_write = |uid: &Arc<str>| self.next_group_write.get(uid).copied().unwrap_or(now);
        let next_group = self.groups.keys().map(next_write).min();
        match next_group.into_iter().chain(self.conditions.next_at(now)).min() {
            Some(at) if at <= now => Due::Now,
            Some(at) => Due::At(at),
            None => Due::Never,
        }
    }

    /// The next write: gangs and policies first, because they stand for many pods; then pods,
    /// because autoscalers wait for them; then events.
    pub(super) fn next(&mut self) -> Option<StatusWrite> {
        let now = Instant::now();
        let next_group_write = &self.next_group_write;
        if let Some(report) =
            self.groups.pop(|uid| next_group_write.get(uid).is_none_or(|at| *at <= now))
        {
            self.next_group_write.insert(Arc::clone(&report.uid), now + GROUP_STATUS_INTERVAL);
            return Some(StatusWrite::Group(report));
        }
        let first = self.policies.pop(|_| true).or_else(|| self.conditions.pop(now));
        first.or_else(|| self.events.pop(|_| true).map(StatusWrite::Event))
    }

    /// Puts a failed write back, unless a newer one is queued.
    pub(super) fn put_back(&mut self, job: StatusWrite) {
        match &job {
            StatusWrite::Condition { pod, .. } => {
                if !self.conditions.put_back(&pod.uid.clone(), job) {
                    self.metrics.dropped("condition");
                }
            }
            StatusWrite::Policy { name, .. } => self.policies.put_if_absent(&name.clone(), job),
            StatusWrite::Group(report) => {
                self.groups.put_if_absent(&report.uid.clone(), report.clone());
            }
            // An event is not worth a second attempt.
            StatusWrite::Event(_) => self.metrics.dropped("event"),
        }
    }

    /// Drops everything: another scheduler leads.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.metrics.clone(), self.scheduled_events);
    }
}

/// Whether a condition has a status or reason that is not observed yet.
pub(super) fn is_urgent(status_text: &StatusText, seen: Option<&ScheduledCondition>) -> bool {
    seen.is_none_or(|seen| seen.is_true || seen.reason != status_text.reason)
}

/// Whether Octavo writes the status of objects of this kind.
pub(super) fn has_status(kind: &Kind) -> bool {
    is_octavo_pod_group(kind) || is_native_pod_group(kind)
}

/// Octavo's own `PodGroup`.
pub(super) fn is_octavo_pod_group(kind: &Kind) -> bool {
    kind.kind == "PodGroup" && kind.api_version == OCTAVO_API_VERSION
}

/// Kubernetes' own `PodGroup`, in any version.
pub(super) fn is_native_pod_group(kind: &Kind) -> bool {
    kind.kind == "PodGroup" && kind.api_version.starts_with("scheduling.k8s.io/")
}

fn pod_event(pod: &PodRef, is_warning: bool, reason: &'static str, note: String) -> EventWrite {
    EventWrite {
        kind: Kind::new("v1", "Pod"),
        name: pod.name.clone(),
        uid: Arc::clone(pod.uid.as_arc()),
        is_warning,
        reason,
        about: reason,
        note,
    }
}
