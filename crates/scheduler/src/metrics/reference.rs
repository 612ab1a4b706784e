//! The reference page of the metrics, generated from what is registered.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use http::Method;
use prometheus_client::registry::Registry;

use super::{Metrics, Subject};
use crate::bind::{Failure, FailureKind};
use crate::status::GroupPhase;

/// A metric's row.
#[derive(Default)]
struct Entry {
    help: String,
    kind: String,
    labels: Vec<String>,
}

/// The page `docs/reference/scheduler-metrics.md`: every metric with its kind, labels and help.
pub fn reference() -> String {
    let mut registry = Registry::default();
    touch_all(&Metrics::new(&mut registry));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    let mut page = String::from(
        "# Metrics of the scheduler\n\nGenerated; do not edit. Served at `/metrics` in the OpenMetrics \
         format.\n\n| metric | kind | labels | what |\n|---|---|---|---|\n",
    );
    for (name, entry) in entries(&text) {
        let labels: Vec<String> = entry.labels.iter().map(|label| format!("`{label}`")).collect();
        let total = if entry.kind == "counter" { "_total" } else { "" };
        let Entry { kind, help, .. } = entry;
        let _ = writeln!(page, "| `{name}{total}` | {kind} | {} | {help} |", labels.join(", "));
    }
    page
}

fn entries(text: &str) -> BTreeMap<String, Entry> {
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            help.trim_end_matches('.')
                .clone_into(&mut entries.entry(name.into()).or_default().help);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' '))
        {
            kind.clone_into(&mut entries.entry(name.into()).or_default().kind);
        } else if let Some((sample, labels)) = line.split_once('{') {
            let owner = entries.iter_mut().rev().find(|(name, _)| sample.starts_with(*name));
            if let Some((_, entry)) = owner {
                let labels = labels.split('}').next().unwrap_or_default().split(',');
                let names = labels.filter_map(|label| Some(label.split_once('=')?.0));
                for name in names.filter(|name| *name != "le") {
                    if !entry.labels.iter().any(|known| known == name) {
                        entry.labels.push(name.to_owned());
                    }
                }
            }
        }
    }
    entries
}

/// Sets each metric once, so that its labels appear.
fn touch_all(metrics: &Metrics) {
    metrics.decided(Subject::Pod, "placed", "", Duration::ZERO);
    metrics.queue("ready", 0);
    metrics.ops(0, 0, 0);
    metrics.op_finished(&Err(Failure {
        step: "",
        message: String::new(),
        kind: FailureKind::Conflict,
        unreleased: Vec::new(),
    }));
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
