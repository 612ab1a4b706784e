//! The scheduler's metrics. The encoder adds `_total` to counters.

mod reference;

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::bind::{Failure, FailureKind};
use crate::status::GroupPhase;

pub use reference::reference;

/// A label with its value.
type Label = (&'static str, &'static str);

/// Resource and verb, and the code of the response.
type RequestLabels = ([Label; 2], [(&'static str, u16); 1]);

/// The subject of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A pod on its own.
    Pod,
    /// A gang.
    Gang,
}

/// All metrics of the scheduler. Clones share the counters.
#[derive(Clone, Debug)]
pub struct Metrics {
    decisions: Family<[Label; 3], Counter>,
    decision_time: Family<[Label; 1], Histogram, fn() -> Histogram>,
    queues: Family<[Label; 1], Gauge>,
    ops: Family<[Label; 1], Gauge>,
    op_limit: Gauge,
    op_failures: Family<[Label; 1], Counter>,
    requests: Family<RequestLabels, Counter>,
    binding_time: Histogram,
    gangs: Family<[Label; 1], Gauge>,
    preemptions: Family<[Label; 1], Counter>,
    nodes_unmodeled: Family<[Label; 1], Gauge>,
    watch_age: Family<[(&'static str, String); 1], Gauge>,
    leader: Gauge,
    reports: Family<[Label; 1], Gauge>,
    dropped: Family<[Label; 1], Counter>,
    claim_rollbacks_abandoned: Counter,
}

/// Registers a metric.
fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// Registers a metric of times.
fn add_time<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

impl Metrics {
    /// Makes the metrics and registers them.
    pub fn new(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("octavo_scheduler");
        // From 10 us, which a plain pod takes, to 10 s, which no decision should take.
        let decision_time: fn() -> Histogram =
            || Histogram::new(exponential_buckets(0.000_01, 2.0, 21));
        Self {
            decisions: add(
                registry,
                "decisions",
                "Decisions about pods and gangs, by result (placed, waits, refused) and reason",
            ),
            decision_time: add_time(
                registry,
                "decision",
                "Time of one decision, without any write",
                Family::new_with_constructor(decision_time),
            ),
            queues: add(registry, "queue", "Pods and gangs that wait, by queue"),
            ops: add(
                registry,
                "orders",
                "Write operations to the API server, in flight and queued",
            ),
            op_limit: add(
                registry,
                "orders_limit",
                "Write operations that may be in flight now; fewer while the API server is overloaded",
            ),
            op_failures: add(
                registry,
                "order_failures",
                "Write operations that failed, by what the failure means for the next attempt",
            ),
            requests: add(
                registry,
                "api_requests",
                "Requests to the API server except watches; code 0: no response",
            ),
            binding_time: add_time(
                registry,
                "pod_binding",
                "Time from the first observation of a pod to its binding",
                Histogram::new(exponential_buckets(0.001, 2.0, 20)),
            ),
            gangs: add(registry, "gangs", "Gangs by phase"),
            preemptions: add(
                registry,
                "preemptions",
                "Pods and gangs that were evicted for others",
            ),
            nodes_unmodeled: add(
                registry,
                "nodes_unmodeled",
                "Nodes that are left out though they have GPUs, by reason: the log says which and why",
            ),
            watch_age: add_time(
                registry,
                "watch_age",
                "Time since the last event of a watch, bookmarks included",
                Family::default(),
            ),
            leader: add(
                registry,
                "leader",
                "1 while this scheduler leads and has read all earlier writes, otherwise 0",
            ),
            reports: add(
                registry,
                "reports",
                "Conditions, statuses and events that wait to be written",
            ),
            dropped: add(
                registry,
                "reports_dropped",
                "Conditions, statuses and events that were dropped: too many were queued",
            ),
            claim_rollbacks_abandoned: add(
                registry,
                "claim_rollbacks_abandoned",
                "Claims that could not be taken back from pods that were not bound, after all tries",
            ),
        }
    }

    /// Counts a decision. `result` and `reason` come from fixed sets.
    pub fn decided(
        &self,
        subject: Subject,
        result: &'static str,
        reason: &'static str,
        took: Duration,
    ) {
        let subject = ("subject", subject.name());
        let labels = [subject, ("result", result), ("reason", reason)];
        self.decisions.get_or_create(&labels).inc();
        self.decision_time.get_or_create(&[subject]).observe(took.as_secs_f64());
    }

    /// Length of a queue.
    pub fn queue(&self, queue: &'static str, length: usize) {
        self.queues.get_or_create(&[("queue", queue)]).set(whole(length));
    }

    /// Sets the operations in flight and queued, and how many may be in flight.
    pub(crate) fn ops(&self, in_flight: usize, waiting: usize, limit: u32) {
        self.ops.get_or_create(&[("state", "flying")]).set(whole(in_flight));
        self.ops.get_or_create(&[("state", "waiting")]).set(whole(waiting));
        self.op_limit.set(limit.into());
    }

    /// Counts the result of an operation.
    pub(crate) fn op_finished(&self, failure: Option<&Failure>) {
        if let Some(failure) = failure {
            let kind = failure_name(failure.kind);
            self.op_failures.get_or_create(&[("kind", kind)]).inc();
        }
    }

    /// Counts a request; `code` 0 means no response.
    pub(crate) fn request(&self, resource: &'static str, method: &Method, code: u16) {
        self.requests.get_or_create(&request_labels(resource, verb(method), code)).inc();
    }

    /// Successful requests so far, by resource and verb. For tests and reports of writes per pod.
    pub fn requests(&self, resource: &'static str, verb: &'static str) -> u64 {
        let count = |code| {
            let labels = request_labels(resource, verb, code);
            self.requests.get(&labels).map_or(0, |counter| counter.get())
        };
        [200, 201, 202].map(count).iter().sum()
    }

    /// Records the time from a pod's first observation to its binding.
    pub fn bound(&self, after: Duration) {
        self.binding_time.observe(after.as_secs_f64());
    }

    /// Gangs that are in a phase.
    pub fn gangs(&self, phase: GroupPhase, count: usize) {
        self.gangs.get_or_create(&[("phase", phase.name())]).set(whole(count));
    }

    /// Counts a pod or gang that is evicted for others.
    pub fn preempted(&self, subject: Subject) {
        self.preemptions.get_or_create(&[("subject", subject.name())]).inc();
    }

    /// Sets the nodes that are left out, by reason. Reasons that are missing are removed.
    pub fn nodes_unmodeled(&self, by_reason: &BTreeMap<&'static str, usize>) {
        self.nodes_unmodeled.clear();
        for (reason, count) in by_reason {
            self.nodes_unmodeled.get_or_create(&[("reason", *reason)]).set(whole(*count));
        }
    }

    /// Sets the whole seconds since the last event of a kind's watch.
    pub fn watch_age(&self, kind: &str, age: Duration) {
        let age = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
        self.watch_age.get_or_create(&[("kind", kind.to_owned())]).set(age);
    }

    /// Whether this scheduler leads.
    pub fn leader(&self, is_leader: bool) {
        self.leader.set(is_leader.into());
    }

    /// Sets the updates that wait: conditions of pods, statuses of other objects, events.
    pub(crate) fn reports(&self, conditions: usize, statuses: usize, events: usize) {
        for (kind, count) in [("condition", conditions), ("status", statuses), ("event", events)] {
            self.reports.get_or_create(&[("kind", kind)]).set(whole(count));
        }
    }

    /// Counts claims that could not be rolled back from pods that were not bound.
    pub(crate) fn claim_rollbacks_abandoned(&self, count: u64) {
        self.claim_rollbacks_abandoned.inc_by(count);
    }

    /// Counts a dropped update.
    pub(crate) fn dropped(&self, kind: &'static str) {
        self.dropped.get_or_create(&[("kind", kind)]).inc();
    }
}

impl Subject {
    const fn name(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Gang => "gang",
        }
    }
}

fn request_labels(resource: &'static str, verb: &'static str, code: u16) -> RequestLabels {
    ([("resource", resource), ("verb", verb)], [("code", code)])
}

const fn failure_name(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::PodGone => "PodGone",
        FailureKind::AlreadyBound => "BoundAlready",
        FailureKind::Conflict => "Conflict",
        FailureKind::Rejected => "Refused",
        FailureKind::Budget => "Budget",
        FailureKind::Unreachable => "Unreachable",
        FailureKind::Indeterminate => "Undecided",
        FailureKind::NotLeader => "NotLeader",
    }
}

fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PATCH => "patch",
        Method::PUT => "update",
        Method::DELETE => "delete",
        _ => "get",
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
