//! Results of runs as JSON, tables and CSV.

mod files;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

pub use files::{write_curves, write_placements};

use crate::metrics::summary::Spread;
use crate::published;
use crate::replay::{Options, Order, PUBLISHED_FACTOR, Policy, Popularity, ReplayResults, Run};
use crate::trace::Trace;

/// Version of the JSON format. Within a version, fields are added and never changed.
pub const API_VERSION: &str = "cli.octavo.dev/v1alpha1";

/// The cluster of the published tables.
const PUBLISHED_NODES: usize = 1213;
const PUBLISHED_MILLI: u64 = 6_212_000;

/// All runs with their common settings.
#[derive(Clone, Debug, Serialize)]
pub struct Report<'a> {
    /// [`API_VERSION`].
    #[serde(rename = "apiVersion")]
    pub api_version: &'static str,
    /// `Replay`.
    pub kind: &'static str,
    /// The node list.
    pub nodes_file: String,
    /// The pod list.
    pub pods_file: String,
    /// The published workload that the pod list's file name names, if any.
    pub workload: Option<&'static str>,
    /// The order in which pods came.
    pub order: Order,
    /// Demand over capacity that the list was brought to.
    pub inflate: Option<f64>,
    /// Whether pods left.
    pub departures: bool,
    /// Each run.
    pub runs: &'a [Run],
    /// Each policy over its seeds.
    pub policies: Vec<Summary>,
}

/// A policy over its seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The policy.
    pub policy: Policy,
    /// What the policy knew about future pods.
    pub popularity: Option<Popularity>,
    /// Runs.
    pub runs: usize,
    /// Runs that passed validation.
    pub valid_runs: usize,
    /// Mean and spread of figures, under their names in a run. If only some runs have a figure, its
    /// spread counts them.
    pub figures: BTreeMap<&'static str, Spread>,
    /// The published mean for this policy, list and demand as a ratio, for comparison with
    /// `allocated_ratio_published`. `None` if the runs do not follow the table's protocol.
    pub published: Option<f64>,
}

/// Name and value of a figure that is averaged.
type Figure = (&'static str, fn(&Run) -> Option<f64>);

const FIGURES: [Figure; 15] = [
    ("allocated_ratio", |run| Some(run.metrics.allocated_ratio)),
    ("allocated_ratio_published", |run| run.metrics.allocated_ratio_published),
    ("allocated_at_0_9", |run| run.metrics.allocated_at_0_9),
    ("first_skip", |run| run.metrics.first_skip),
    ("first_skip_any", |run| run.metrics.first_skip_any),
    ("accepted_multi_gpu", |run| run.metrics.accepted_multi_gpu),
    ("idle_gpus", |run| Some(run.metrics.idle_gpus)),
    ("fragmentation_ratio", |run| Some(run.metrics.fragmentation.ratio)),
    ("fragmentation_at_0_9_ratio", |run| run.metrics.fragmentation_at_0_9.map(|found| found.ratio)),
    ("given_ratio", |run| run.metrics.over_time.and_then(|sums| sums.given_ratio)),
    ("allocated_ratio_mean", |run| {
        run.metrics.over_time.and_then(|sums| sums.allocated_ratio_mean)
    }),
    ("decision_us_p50", |run| Some(run.times.decision_us_p50)),
    ("decision_us_p99", |run| Some(run.times.decision_us_p99)),
    ("decision_us_mean", |run| Some(run.times.decision_us_mean)),
    ("wall_time_s", |run| Some(run.wall_time_s)),
];

impl<'a> Report<'a> {
    /// The report of some results. It contains the file names; the pod list's name decides whether
    /// there are published figures.
    pub fn of(
        trace: &Trace,
        nodes: &Path,
        pods: &Path,
        options: &Options,
        outcome: &'a ReplayResults,
    ) -> Self {
        let workload = published::workload_of(pods);
        let comparable = workload.filter(|_| is_published_protocol(trace, options));
        let runs = outcome.runs.as_slice();
        Self {
            api_version: API_VERSION,
            kind: "Replay",
            nodes_file: nodes.display().to_string(),
            pods_file: pods.display().to_string(),
            workload,
            order: options.order,
            inflate: options.inflate.map(crate::arrivals::Factor::value),
            departures: options.departures,
            runs,
            policies: runs
                .chunk_by(|left, right| left.policy == right.policy)
                .map(|runs| Summary::of(runs, comparable))
                .collect(),
        }
    }

    /// As JSON, indented.
    pub fn json(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The report as a text table.
    pub fn table(&self) -> String {
        table::draw(self)
    }
}

impl Summary {
    /// Of the runs of one policy.
    fn of(runs: &[Run], workload: Option<&str>) -> Summary {
        let policy = runs.first().map_or(Policy::Octavo, |run| run.policy);
        let published = policy.published_name().zip(workload);
        let published = published.and_then(|(policy, workload)| published::mean(workload, policy));
        let spread = |(name, figure): Figure| Some((name, Spread::of(runs.iter().map(figure))?));
        Summary {
            policy,
            popularity: runs.first().and_then(|run| run.popularity),
            runs: runs.len(),
            valid_runs: runs.iter().filter(|run| run.valid).count(),
            figures: FIGURES.into_iter().filter_map(spread).collect(),
            published: published.map(|percent| percent / 100.0),
        }
    }

    /// Mean and spread of a figure.
    pub fn figure(&self, name: &str) -> Option<Spread> {
        self.figures.get(name).copied()
    }
}

/// Whether these are the cluster, order and demand of the published tables.
fn is_published_protocol(trace: &Trace, options: &Options) -> bool {
    let factor = options.inflate.map(crate::arrivals::Factor::value);
    options.order == Order::Shuffled
        && factor == Some(PUBLISHED_FACTOR)
        && trace.nodes.len() == PUBLISHED_NODES
        && trace.capacity_gpu_milli() == PUBLISHED_MILLI
}
