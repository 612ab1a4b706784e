//! Replay of a trace: a policy places or skips each arriving pod, one by one.
//!
//! ```text
//! trace, seed --arrivals--> events --> policy: choose --> cluster: place --> meter: figures, curve
//!                                                    \--> log --> validator: valid, or a violation
//!                                                            \--> hash: equal if two runs did the same
//! ```
//!
//! The policy is notified of each pod that arrives, is placed or leaves, as by a scheduler. A pod
//! without a placement is skipped and never retried. Runs are independent, so any number of threads
//! gives the same results.

pub(crate) mod jobs;
mod log;
mod policy;
mod replayer;
mod run_spec;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroUsize;

use octavo_engine::cluster::ClusterError;
use serde::Serialize;

pub use log::{Entry, Log, Place};
pub use policy::{Policy, Popularity, Setup};
pub use replayer::{ReplayResult, replay_with};

use crate::arrivals::{ArrivalError, Factor};
use crate::metrics::{CurvePoint, DecisionTimes, Metrics};
use crate::trace::Trace;

/// Demand over capacity of the published runs.
pub const PUBLISHED_FACTOR: f64 = 1.3;

/// The order in which pods arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Shuffled by the seed as in the published simulator, and tuned to --inflate
    #[default]
    Shuffled,
    /// By creation time
    Created,
    /// In the order of the file
    File,
}

/// The runs to execute: each policy with each seed.
#[derive(Clone, Debug)]
pub struct Options {
    /// Policies, in the order of the results.
    pub policies: Vec<Policy>,
    /// What [`Policy::Octavo`] knows about future pods.
    pub popularity: Popularity,
    /// Seeds, in the order of the results.
    pub seeds: Vec<i64>,
    /// The order in which pods arrive.
    pub order: Order,
    /// Demand over capacity that a shuffled list is tuned to. `None` keeps the list's own demand.
    pub inflate: Option<Factor>,
    /// Whether pods leave at their times of deletion; needs [`Order::Created`].
    pub departures: bool,
    /// Runs at once.
    pub jobs: NonZeroUsize,
}

impl Default for Options {
    /// Octavo, learning, by the published protocol with its first seed, one run at a time.
    fn default() -> Self {
        Self {
            policies: vec![Policy::Octavo],
            popularity: Popularity::Learned,
            seeds: vec![42],
            order: Order::Shuffled,
            inflate: Factor::new(PUBLISHED_FACTOR).ok(),
            departures: false,
            jobs: NonZeroUsize::MIN,
        }
    }
}

/// Results of all runs.
#[derive(Clone, Debug)]
pub struct ReplayResults {
    /// Policy by policy, seed by seed, as the options list them.
    pub runs: Vec<Run>,
}

/// One policy with one seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// The policy.
    pub policy: Policy,
    /// What the policy knew about future pods; `None` if it does not use that.
    pub popularity: Option<Popularity>,
    /// The seed.
    pub seed: i64,
    /// Figures.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// SHA-256 over all placements, see [`Log::hash`].
    pub placement_hash: String,
    /// Whether the run passed the independent validator.
    pub valid: bool,
    /// The violation, if any.
    pub violation: Option<String>,
    /// How long decisions took.
    #[serde(flatten)]
    pub times: DecisionTimes,
    /// How long the run took, in seconds, arrivals and validation included.
    pub wall_time_s: f64,
    /// The curve.
    #[serde(skip)]
    pub curve: Vec<CurvePoint>,
    /// The placement of each pod, by name.
    #[serde(skip)]
    pub log: Log,
}

/// Why no run was possible. No run is left half done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The list cannot arrive in this order.
    #[error(transparent)]
    Arrivals(#[from] ArrivalError),
    /// The engine cannot hold such a cluster.
    #[error("the node list is too large for the engine")]
    Cluster(#[from] ClusterError),
    /// Departures in an order without times.
    #[error("departures need the creation order, not the {order} order; omit --order")]
    DeparturesWithoutTimes {
        /// The requested order.
        order: Order,
    },
    /// Departures of a list without any deletion time.
    #[error(
        "none of the {pods} pods has a deletion_time, so no pod would leave; use a list with \
         times, or omit --departures"
    )]
    NoDepartures {
        /// Pods in the list.
        pods: usize,
    },
    /// The engine has no policy of that name.
    #[error("the engine has no policy {policy}; this is a defect, report it")]
    NoPolicy {
        /// The policy.
        policy: Policy,
    },
    /// A factor with an order that repeats no pod.
    #[error("only a shuffled list can be tuned to a demand; omit --inflate or --order {order}")]
    InflatedOrder {
        /// The requested order.
        order: Order,
    },
}

/// Observes the progress of runs. The methods are called from several threads.
pub trait ReplayObserver: Sync {
    /// Another `more` of the run's `events` are processed.
    fn advanced(&self, more: usize, events: usize);
    /// A run has ended.
    fn finished(&self, run: &Run);
}

/// Watches nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl ReplayObserver for NoObserver {
    fn advanced(&self, _: usize, _: usize) {}
    fn finished(&self, _: &Run) {}
}

/// Runs each policy with each seed on a trace.
///
/// A run that fails validation is no error: check [`Run::valid`].
pub fn run(
    trace: &Trace,
    options: &Options,
    observer: &dyn ReplayObserver,
) -> Result<ReplayResults, ReplayError> {
    options.check()?;
    if options.departures && trace.pods.iter().all(|pod| pod.deletion_time.is_none()) {
        return Err(ReplayError::NoDepartures { pods: trace.pods.len() });
    }
    let specs = run_spec::all(options);
    let inputs = run_spec::SharedInputs::new(trace);
    let run = |index: usize| inputs.run(specs[index], options, observer);
    let runs = jobs::in_order(specs.len(), options.jobs, run);
    Ok(ReplayResults { runs: runs.into_iter().collect::<Result<_, _>>()? })
}

impl Options {
    /// Checks that the options are consistent, for any trace.
    pub fn check(&self) -> Result<(), ReplayError> {
        let order = self.order;
        if self.departures && order != Order::Created {
            return Err(ReplayError::DeparturesWithoutTimes { order });
        }
        if self.inflate.is_some() && order != Order::Shuffled {
            return Err(ReplayError::InflatedOrder { order });
        }
        Ok(())
    }
}

impl ReplayError {
    /// Whether the options are invalid for every trace.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Arrivals(error) => error.is_usage(),
            Self::DeparturesWithoutTimes { .. } | Self::InflatedOrder { .. } => true,
            Self::Cluster(_) | Self::NoDepartures { .. } | Self::NoPolicy { .. } => false,
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Shuffled => "shuffled",
            Self::Created => "created",
            Self::File => "file",
        })
    }
}
