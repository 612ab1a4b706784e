//! The worth of a node: the value of its residual GPUs, and how much of it typical pods can use.
//!
//! ```text
//! worth = 300 sum over GPUs of value(left) + sum over typical shapes of weight (usable^0.3 - left^0.3)
//!       + 2.5 churn (sum over GPUs of left)^2
//! ```
//!
//! `usable` is the capacity that pods of the shape can take on the node. It is limited to GPUs with
//! enough left, to MIG instances with a placement, and by the node's CPU and memory. Fragmentation
//! is the difference (Weng et al., USENIX ATC 2023). The power makes it concave: the first usable
//! GPUs of a node count more than the last ones. One node is therefore used up rather than many
//! being half spoilt.

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
const VALUE_WEIGHT: i64 = 300;
/// Worth of a millionth of a GPU.
pub(super) const WORTH_PER_MILLIONTH: i64 = VALUE_WEIGHT * TOTAL_WEIGHT;
/// Weight of having the residual on one node, for a churn of 100 %: per square of a thousandth of a
/// GPU. On openb's mixes the acceptance of 8-GPU pods grows up to about this weight and stays the
/// same for ten times as much.
const GATHERING_WEIGHT: i64 = 5 * WORTH_UNIT / 2 / 1_000_000;
/// The power of the concave measure.
const POWER: f64 = 0.3;

/// `x^0.3` in millionths, for whole `x`.
#[derive(Clone, Debug, Default)]
pub(super) struct Powers(Vec<i64>);

/// Appraises nodes of one class.
#[derive(Clone, Debug, Default)]
pub(super) struct Appraiser {
    values: Option<Arc<Values>>,
    /// Sum of the weights of all typical shapes, including those not allowed on the class.
    weight: i64,
    /// For each square of a thousandth of a GPU that is left.
    gathering: i64,
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

impl Powers {
    /// Has them up to `most`.
    #[expect(clippy::cast_possible_truncation, reason = "at most 64,000^0.3 millionths")]
    pub(super) fn extend_to(&mut self, most: u32) {
        let known = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let power = |x| (libm::pow(f64::from(x), POWER) * 1e6 + 0.5) as i64;
        self.0.extend((known..=most).map(|x| if x == 0 { 0 } else { power(x) }));
    }

    fn of(&self, x: u32) -> i64 {
        self.0.get(x as usize).or(self.0.last()).copied().unwrap_or(0)
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
    pub(super) fn new(values: Option<Arc<Values>>, weight: i64, churn: i64) -> Self {
        let gathering = GATHERING_WEIGHT * churn / 100;
        Self { values, weight, gathering, parts: Vec::new(), terms: Vec::new() }
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
    pub(super) fn worth(&self, powers: &Powers, free: &Resources, residuals: &GpuResiduals) -> i64 {
        let left: u32 = residuals.iter().map(|residual| u32::from(residual.milli)).sum();
        if left == 0 {
            return 0;
        }
        let free = CompactResources::of(free);
        let usable: smallvec::SmallVec<[(u32, u32); 32]> =
            self.parts.iter().map(|parts| parts.usable(residuals)).collect();
        let mut worth =
            VALUE_WEIGHT * TOTAL_WEIGHT * self.value(residuals) - self.weight * powers.of(left);
        worth += self.gathering * i64::from(left) * i64::from(left);
        for term in &self.terms {
            let (milli, count) = usable[term.parts];
            if count < term.count {
                continue;
            }
            let most = term.resources.times_in(&free).saturating_mul(term.milli);
            worth += term.weight * powers.of(milli.min(most));
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
