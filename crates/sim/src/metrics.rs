//! Metrics of a run.
//!
//! All ratios are parts of 1. *Wanted* is the demand of all pods that have arrived and not left, in
//! GPUs. Skipped pods count until their lifetime would have ended: no pod waits, so a skipped pod
//! is lost. Without departures, *wanted* is the demand of all arrivals so far. An arrival counts as
//! soon as it is decided.

mod classes;
mod cluster_fragmentation;
mod curve;
mod decisions;
mod meter;
mod over_time;
mod published_bin;
pub mod summary;
#[cfg(test)]
mod tests;

use octavo_engine::fragmentation::{Amounts, Usability};
use serde::Serialize;

pub use classes::{Accepted, ClassCount};
pub(crate) use cluster_fragmentation::ClusterFragmentation;
pub use curve::CurvePoint;
pub use decisions::DecisionTimes;
pub(crate) use meter::{ClusterUsage, Meter, MeterSetup};
pub use over_time::OverTime;

/// Metrics of a run. "At the end" is after the last arrival. Later departures would only show an
/// emptying cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// GPUs of the cluster.
    pub gpus: u64,
    /// Pods that arrived.
    pub pods: usize,
    /// Wanted GPUs at the end, as a ratio of all GPUs.
    pub wanted_ratio: f64,
    /// Allocated GPUs at the end, as a ratio of all GPUs.
    pub allocated_ratio: f64,
    /// The same ratio by the rule of the published tables. It is the mean over all arrivals at
    /// which the demand, rounded to a whole percent, is the target. `None` without a target.
    pub allocated_ratio_published: Option<f64>,
    /// Allocated GPUs when the wanted GPUs first reached 90 %. `None` if they never did.
    pub allocated_at_0_9: Option<f64>,
    /// Wanted GPUs as a ratio of all GPUs when the first GPU pod without a named model was skipped.
    /// Up to that demand, the policy serves every such pod. `None` if no such pod was skipped.
    pub first_skip: Option<f64>,
    /// The same for any pod: without GPUs, or tied to a model.
    pub first_skip_any: Option<f64>,
    /// Placed pods of several GPUs, as a ratio of those that arrived. `None` if there were none.
    pub accepted_multi_gpu: Option<f64>,
    /// Placed and skipped pods by their request.
    pub accepted: Accepted,
    /// Pods that were skipped.
    pub skipped: usize,
    /// Pods that were skipped although they fit a node. A work-conserving policy has none.
    pub refused: usize,
    /// GPUs not allocated at the end; parts of GPUs count as parts.
    pub idle_gpus: f64,
    /// GPUs without any allocation at the end.
    pub unused_gpus: i64,
    /// Fragmentation when 90 % were first wanted.
    pub fragmentation_at_0_9: Option<Fragments>,
    /// Fragmentation at the end.
    pub fragmentation: Fragments,
    /// Sums over time, if pods leave.
    pub over_time: Option<OverTime>,
}

/// Free GPUs that typical pods cannot use. Typical pods are the most popular ones that make up 95 %
/// of the list (Weng et al., USENIX ATC 2023).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Fragments {
    /// Fragments, of all that is free.
    pub ratio: f64,
    /// Fragments in GPUs.
    pub gpus: f64,
    /// All free GPUs, by their use to typical pods.
    pub stranded: Stranded,
}

/// Free GPUs by their use to typical pods; each pod counts by its popularity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Stranded {
    /// The pod can use them. All else is fragments.
    pub usable: f64,
    /// The node has neither the CPU nor the GPUs for it.
    pub lacks_both: f64,
    /// The node has not the GPUs for it, or it fits, but not on these.
    pub lacks_gpu: f64,
    /// The node has the GPUs but not the CPU.
    pub lacks_cpu: f64,
    /// The pod wants another model.
    pub no_access: f64,
    /// The pod fits and asks for no GPU.
    pub not_asked_for: f64,
    /// The pod asks for no GPU, and the node has not the CPU for it either.
    pub not_asked_for_lacks_cpu: f64,
}

impl Fragments {
    /// From the engine's amounts.
    pub(crate) fn of(amounts: &Amounts) -> Self {
        let gpus = |class| amounts.milli(class) / 1000.0;
        Self {
            ratio: amounts.percent() / 100.0,
            gpus: amounts.fragment_milli() / 1000.0,
            stranded: Stranded {
                usable: gpus(Usability::Usable),
                lacks_both: gpus(Usability::LacksBoth),
                lacks_gpu: gpus(Usability::LacksGpu),
                lacks_cpu: gpus(Usability::LacksCpu),
                no_access: gpus(Usability::NoAccess),
                not_asked_for: gpus(Usability::NotAskedFor),
                not_asked_for_lacks_cpu: gpus(Usability::NotAskedForLacksCpu),
            },
        }
    }
}

/// `part` over `whole`; `None` if `whole` is 0.
pub(crate) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| float(part) / float(whole))
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 milli, nine trillion GPUs")]
pub(crate) fn float(amount: u64) -> f64 {
    amount as f64
}
