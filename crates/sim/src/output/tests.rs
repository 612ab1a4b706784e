use std::path::Path;

use super::*;
use crate::replay::{self, NoObserver};
use crate::trace::{NodeRow, PodRow};

/// A cluster as large as the published one, and hardly any work.
fn trace() -> Trace {
    let node = |number: usize| NodeRow {
        name: format!("node-{number:04}"),
        cpu_milli: 64_000,
        memory_mib: 1024,
        gpus: if number < 147 { 6 } else { 5 },
        model: "T4".to_owned(),
    };
    let pod = PodRow {
        name: "pod".to_owned(),
        cpu_milli: 1000,
        num_gpu: 5,
        gpu_milli: 1000,
        ..PodRow::default()
    };
    Trace { nodes: (0..1213).map(node).collect(), pods: vec![pod] }
}

fn published(pods: &str, options: &Options) -> Vec<Option<f64>> {
    let (trace, nodes) = (trace(), Path::new("nodes.csv"));
    assert_eq!(trace.capacity_gpu_milli(), PUBLISHED_MILLI);
    let outcome = replay::run(&trace, options, &NoObserver).unwrap();
    let report = Report::of(&trace, nodes, Path::new(pods), options, &outcome);
    report.policies.iter().map(|summary| summary.published).collect()
}

#[test]
fn published_figures_appear_only_for_their_protocol() {
    let options = Options {
        policies: vec![Policy::Fgd, Policy::DotProduct, Policy::Octavo],
        ..Options::default()
    };
    let found = published("data/openb_pod_list_default.csv", &options);
    assert_eq!(found, [Some(0.9539), Some(0.9085), None]);
    assert_eq!(published("data/other.csv", &options), [None, None, None]);
    let fuller = Options { inflate: crate::arrivals::Factor::new(1.4).ok(), ..options };
    assert_eq!(published("openb_pod_list_default.csv", &fuller), [None, None, None]);
}

#[test]
fn a_figure_that_only_some_runs_have_says_how_many() {
    let trace = trace();
    let options = Options { policies: vec![Policy::BestFit], ..Options::default() };
    let mut outcome = replay::run(&trace, &options, &NoObserver).unwrap();
    let mut other = outcome.runs[0].clone();
    other.metrics.first_skip = None;
    outcome.runs[0].metrics.first_skip = Some(1.25);
    outcome.runs.push(other);
    let report = Report::of(&trace, Path::new("n"), Path::new("p"), &options, &outcome);
    let spread = report.policies[0].figure("first_skip").unwrap();
    assert_eq!((spread.mean, spread.runs), (1.25, 1));
    assert_eq!(report.policies[0].figure("given_ratio"), None);
}

#[test]
fn a_run_that_is_not_valid_is_shown_as_such() {
    let trace = trace();
    let options = Options { policies: vec![Policy::BestFit], ..Options::default() };
    let mut outcome = replay::run(&trace, &options, &NoObserver).unwrap();
    outcome.runs[0].valid = false;
    outcome.runs[0].violation = Some("event 1: nonsense".to_owned());
    let report = Report::of(&trace, Path::new("n"), Path::new("p"), &options, &outcome);
    assert_eq!(report.policies[0].valid_runs, 0);
    let table = report.table();
    assert!(table.contains("NO\n"), "{table}");
    assert!(table.ends_with("not valid: best-fit with seed 42: event 1: nonsense\n"), "{table}");
}
