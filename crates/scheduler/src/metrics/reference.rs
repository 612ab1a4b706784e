//! The reference page of the metrics, generated from what is registered.

use std::time::Duration;

use http::Method;
use octavo_kube_io::metrics_page;
use prometheus_client::registry::Registry;

use super::{Metrics, Subject};
use crate::bind::{Failure, FailureKind};
use crate::status::GroupPhase;

/// The page `docs/reference/scheduler-metrics.md`: every metric with its kind, labels and help.
pub fn reference() -> String {
    let mut registry = Registry::default();
    touch_all(&Metrics::new(&mut registry));
    metrics_page("Metrics of the scheduler", &registry)
}

/// Sets each metric once, so that its labels appear.
fn touch_all(metrics: &Metrics) {
    metrics.decided(Subject::Pod, "placed", "", Duration::ZERO);
    metrics.queue("ready", 0);
    metrics.ops(0, 0, 0);
    metrics.op_finished(Some(&Failure::new("", FailureKind::Conflict, "")));
    metrics.request("pods/binding", &Method::POST, 201);
    metrics.bound(Duration::ZERO);
    metrics.gangs(GroupPhase::Waiting, 0);
    metrics.preempted(Subject::Gang);
    metrics.nodes_unmodeled(&[("", 0)].into());
    metrics.watch_age("Pod", Duration::ZERO);
    metrics.leader(false);
    metrics.reports(0, 0, 0);
    metrics.dropped("event");
}
