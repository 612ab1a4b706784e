//! Events of a cycle that the metrics count.

use crate::metrics::Subject;
use crate::state::queue::QueueKey;

/// An event for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricEvent {
    /// A decision about a pod or gang.
    Decided {
        /// Whether it is about a pod or a gang.
        subject: Subject,
        /// `placed`, `nominated`, `refused` or `waits`.
        result: &'static str,
        /// The pending reason; empty if placed.
        reason: &'static str,
    },
    /// A pod has been bound.
    PodBound {
        /// Milliseconds since the scheduler first observed the pod.
        after_ms: u64,
    },
    /// A pod or gang is evicted for others. A gang counts once for each nomination.
    Preempted(Subject),
}

/// Events that were not taken yet.
#[derive(Debug, Default)]
pub(in crate::state) struct MetricEvents {
    events: Vec<MetricEvent>,
}

impl MetricEvents {
    /// Records a decision about an entry.
    pub(in crate::state) fn decided(
        &mut self,
        key: &QueueKey,
        result: &'static str,
        reason: &'static str,
    ) {
        self.events.push(MetricEvent::Decided { subject: key.subject(), result, reason });
    }

    /// Records a bound pod.
    pub(in crate::state) fn pod_bound(&mut self, after_ms: u64) {
        self.events.push(MetricEvent::PodBound { after_ms });
    }

    /// Records an evicted pod or gang.
    pub(in crate::state) fn preempted(&mut self, victim: &QueueKey) {
        self.events.push(MetricEvent::Preempted(victim.subject()));
    }

    /// Returns the events and forgets them.
    pub(in crate::state) fn take(&mut self) -> Vec<MetricEvent> {
        std::mem::take(&mut self.events)
    }
}
