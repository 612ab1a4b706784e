//! The worth of a node: its residual GPUs, and how much of them typical pods can use.
//!
//! ```text
//! worth = 60 sum over GPUs of value(left) + 30 scarcity left
//!       + sum over typical shapes of weight (usable(u) - total(left))
//!
//! a cluster that fills:   usable(x) = 2 x^0.3 of thousandths   total(x) = usable(x)
//! a steady cluster:       usable(x) = 30 x + 10 x^2 of GPUs    total(x) = 30 x
//! ```
//!
//! `u` is the capacity that pods of the shape can take on the node. It is limited to GPUs with
//! enough left, to MIG instances with a placement, and by the node's CPU and memory. Fragmentation
//! is the difference to what is left (Weng et al., USENIX ATC 2023).
//!
//! While a cluster fills, the curve is concave: the first usable GPUs of a node count more than the
//! last ones, so one node is used up rather than many being half spoilt. In a steady cluster the
//! curve is convex: what leaves and stays free should gather on few nodes, where large pods fit.
//!
//! `scarcity` belongs to the model: pods that may use any model leave those that others need.

use std::sync::Arc;

use super::gpu_residual::{GpuResidual, GpuResiduals};
use super::value::Values;
use crate::fit;
use crate::gpu::{MigProfile, WHOLE};
use crate::resources::Resources;

/// Weights of typical shapes add up to about this.
pub(super) const TOTAL_WEIGHT: i64 = 1_000_000;
/// Worth of 1 in the formula above: values, weights and powers are in millionths.
pub(super) const WORTH_UNIT: i64 = 1_000_000_000_000;
/// Weight of a GPU's value relative to fragmentation.
const VALUE_WEIGHT: i64 = 60;
/// Worth of a millionth of a GPU.
pub(super) const WORTH_PER_MILLIONTH: i64 = VALUE_WEIGHT * TOTAL_WEIGHT;
/// Weight of a free GPU of a model that only pods with this model want. On openb's lists with many
/// such pods 15 gives a point less, 100 no more.
const SCARCITY_WEIGHT: i64 = 30;
/// Weight of a usable GPU in a steady cluster, and of its square: see above.
const USABLE_WEIGHT: i64 = 30;
const GATHERING_WEIGHT: i64 = 10;
/// Scale of the concave measure.
const FILLING_SCALE: f64 = 2.0;
/// The power of the concave measure.
const POWER: f64 = 0.3;

/// What capacity on one node is worth: see above. In millionths, of thousandths of GPUs.
#[derive(Clone, Debug)]
pub(super) enum Curve {
    /// Of a cluster that fills, by amount.
    Filling(Vec<i64>),
    /// Of a steady cluster.
    Steady,
}

/// Appraises nodes of one class.
#[derive(Clone, Debug, Default)]
pub(super) struct Appraiser {
    values: Option<Arc<Values>>,
    /// Sum of the weights of all typical shapes, including those not allowed on the class.
    weight: i64,
    /// Scarcity of the model, in millionths.
    scarcity: i64,
    parts: Vec<PartKind>,
    terms: Vec<Term>,
}

/// Parts of GPUs that typical shapes ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PartKind {
    /// Whole GPUs.
    Whole,
    /// Shares with this compute and memory.
    Share(u16, u32),
    /// Instances of a profile.
    Mig(MigProfile),
}

/// A typical shape on nodes of the class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    pub(super) parts: usize,
    pub(super) weight: i64,
    pub(super) count: u32,
    /// Thousandths that a pod takes in all.
    pub(super) milli: u32,
    pub(super) resources: CompactResources,
}

/// Plain resources in 32 bits: divisions dominate the time of an appraisal.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompactResources {
    cpu: u32,
    memory: u32,
    pods: u32,
}

impl Curve {
    pub(super) fn new(is_steady: bool) -> Self {
        if is_steady { Self::Steady } else { Self::Filling(Vec::new()) }
    }

    /// Is known up to `most`.
    #[expect(clippy::cast_possible_truncation, reason = "at most 2 * 64,000^0.3 millionths")]
    pub(super) fn extend_to(&mut self, most: u32) {
        let Self::Filling(table) = self else { return };
        let known = u32::try_from(table.len()).unwrap_or(u32::MAX);
        let power = |x| (libm::pow(f64::from(x), POWER) * FILLING_SCALE * 1e6 + 0.5) as i64;
        table.extend((known..=most).map(|x| if x == 0 { 0 } else { power(x) }));
    }

    fn usable(&self, milli: u32) -> i64 {
        let wide = i64::from(milli);
        match self {
            Self::Filling(table) => {
                table.get(milli as usize).or(table.last()).copied().unwrap_or(0)
            }
            Self::Steady => USABLE_WEIGHT * 1000 * wide + GATHERING_WEIGHT * wide * wide,
        }
    }

    fn total(&self, milli: u32) -> i64 {
        match self {
            Self::Filling(_) => self.usable(milli),
            Self::Steady => USABLE_WEIGHT * 1000 * i64::from(milli),
        }
    }
}

impl CompactResources {
    pub(super) fn of(resources: &Resources) -> Self {
        let narrow = |amount: i64| u32::try_from(amount.max(0)).unwrap_or(u32::MAX);
        Self {
            cpu: narrow(resources.cpu_milli),
            memory: narrow(resources.memory_mib),
            pods: narrow(resources.pods),
        }
    }

    /// How often this much can be taken from `free`.
    pub(super) fn times_in(&self, free: &Self) -> u32 {
        let cpu = free.cpu.checked_div(self.cpu).unwrap_or(u32::MAX);
        let memory = free.memory.checked_div(self.memory).unwrap_or(u32::MAX);
        let pods = if self.pods == 1 {
            free.pods
        } else {
            free.pods.checked_div(self.pods).unwrap_or(u32::MAX)
        };
        cpu.min(memory).min(pods)
    }
}

impl Appraiser {
    pub(super) fn new(values: Option<Arc<Values>>, weight: i64, scarcity: i64) -> Self {
        Self { values, weight, scarcity, parts: Vec::new(), terms: Vec::new() }
    }

    /// Adds a typical shape that is allowed on the class.
    pub(super) fn add(&mut self, parts: PartKind, term: Term) {
        let found = self.parts.iter().position(|known| *known == parts);
        let at = found.unwrap_or_else(|| {
            self.parts.push(parts);
            self.parts.len() - 1
        });
        self.terms.push(Term { parts: at, ..term });
    }

    /// Value of the residual GPUs, in millionths of a GPU.
    pub(super) fn value(&self, residuals: &GpuResiduals) -> i64 {
        let Some(values) = &self.values else { return 0 };
        residuals.iter().map(|residual| values.left(&residual.gpu, residual.milli)).sum()
    }

    /// The worth of a node of the class.
    pub(super) fn worth(&self, curve: &Curve, free: &Resources, residuals: &GpuResiduals) -> i64 {
        let left: u32 = residuals.iter().map(|residual| u32::from(residual.milli)).sum();
        if left == 0 {
            return 0;
        }
        let free = CompactResources::of(free);
        let usable: smallvec::SmallVec<[(u32, u32); 32]> =
            self.parts.iter().map(|parts| parts.usable(residuals)).collect();
        let mut worth =
            VALUE_WEIGHT * TOTAL_WEIGHT * self.value(residuals) - self.weight * curve.total(left);
        worth += SCARCITY_WEIGHT * 1000 * self.scarcity * i64::from(left);
        for term in &self.terms {
            let (milli, count) = usable[term.parts];
            if count < term.count {
                continue;
            }
            let most = term.resources.times_in(&free).saturating_mul(term.milli);
            worth += term.weight * curve.usable(milli.min(most));
        }
        worth
    }
}

impl PartKind {
    /// Thousandths that pods with such parts can use on these GPUs, and the number of available
    /// parts: GPUs, or instances.
    fn usable(&self, residuals: &GpuResiduals) -> (u32, u32) {
        let mut sum = (0, 0);
        for residual in residuals {
            let (milli, parts) = self.usable_of(residual);
            sum.0 += milli;
            sum.1 += parts;
        }
        sum
    }

    fn usable_of(&self, residual: &GpuResidual) -> (u32, u32) {
        let gpu = &residual.gpu;
        match self {
            Self::Whole if residual.is_idle => (WHOLE.into(), 1),
            Self::Share(milli, memory)
                if residual.milli > 0
                    && gpu.slices.is_empty()
                    && gpu.milli >= *milli
                    && gpu.memory_mib >= *memory =>
            {
                (residual.milli.into(), 1)
            }
            Self::Mig(profile) => {
                let instances = fit::instances_in(gpu, profile);
                (instances * u32::from(profile.milli), instances)
            }
            Self::Whole | Self::Share(..) => (0, 0),
        }
    }
}
