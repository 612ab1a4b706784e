//! What a run is measured by.
//!
//! All ratios are parts of 1. *Wanted* is what the pods ask for that have come and not left again,
//! in GPUs, placed or not: a skipped pod is lost, nobody waits, but its wish counts as long as it
//! would have run. Without departures that is the demand that has arrived. An arrival counts with
//! its own demand from the moment it is decided.

mod classes;
mod curve;
mod decisions;
mod meter;
mod over_time;
mod published_bin;
pub mod summary;
#[cfg(test)]
mod tests;

use octavo_engine::fragmentation::{Amounts, Class};
use serde::Serialize;

pub use classes::{Accepted, ClassCount};
pub use curve::CurvePoint;
pub use decisions::DecisionTimes;
pub(crate) use meter::{ClusterUsage, Meter, MeterSetup};
pub use over_time::OverTime;

/// What a run comes to. "At the end" is after the last arrival: what leaves later leaves an empty
/// cluster behind, of which nothing can be learnt.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// GPUs of the cluster.
    pub gpus: u64,
    /// Pods that arrived.
    pub pods: usize,
    /// GPUs wanted at the end, of those there are.
    pub wanted_ratio: f64,
    /// GPUs given out at the end, of those there are.
    pub allocated_ratio: f64,
    /// The same by the published tables' rule: the mean over all arrivals at which the arrived
    /// demand, rounded to a whole percent, is the target. None without a target.
    pub allocated_ratio_published: Option<f64>,
    /// GPUs given out when 90 % were first wanted. None if they never were.
    pub allocated_at_0_9: Option<f64>,
    /// GPUs wanted, of those there are, when the first GPU pod that names no model was skipped: how
    /// long the policy serves everybody. None if none was.
    pub first_skip: Option<f64>,
    /// The same for any pod: without GPUs, or tied to a model.
    pub first_skip_any: Option<f64>,
    /// Pods of several GPUs that were placed, of those that came. None if none came.
    pub accepted_multi_gpu: Option<f64>,
    /// What became of the pods, by what they ask for.
    pub accepted: Accepted,
    /// Pods that were skipped.
    pub skipped: usize,
    /// Pods that were skipped although a node had room for them. A work-conserving policy has none.
    pub refused: usize,
    /// GPUs not given out at the end; parts of GPUs are counted as parts.
    pub idle_gpus: f64,
    /// GPUs of which nothing is given out at the end.
    pub unused_gpus: i64,
    /// Fragmentation when 90 % were first wanted.
    pub fragmentation_at_0_9: Option<Fragments>,
    /// Fragmentation at the end.
    pub fragmentation: Fragments,
    /// Sums over time, if pods leave.
    pub over_time: Option<OverTime>,
}

/// What is free and of no use to typical pods, the most popular that make up 95 % of the list (Weng
/// et al., USENIX ATC 2023).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Fragments {
    /// Fragments, of all that is free.
    pub ratio: f64,
    /// Fragments in GPUs.
    pub gpus: f64,
    /// All that is free in GPUs, by what becomes of it.
    pub stranded: Stranded,
}

/// Free GPUs by what they are to typical pods, each pod counting by its popularity.
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
                usable: gpus(Class::Usable),
                lacks_both: gpus(Class::LacksBoth),
                lacks_gpu: gpus(Class::LacksGpu),
                lacks_cpu: gpus(Class::LacksCpu),
                no_access: gpus(Class::NoAccess),
                not_asked_for: gpus(Class::NotAskedFor),
                not_asked_for_lacks_cpu: gpus(Class::NotAskedForLacksCpu),
            },
        }
    }
}

/// `part` of `whole`; none of nothing.
pub(crate) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| float(part) / float(whole))
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 milli, nine trillion GPUs")]
pub(crate) fn float(amount: u64) -> f64 {
    amount as f64
}
