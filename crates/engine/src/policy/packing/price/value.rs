//! The value of a GPU's residual: the demand that still fits on it.
//!
//! Dividing GPUs into shares is the cutting-stock problem. GPUs are stock of length 1000, share
//! sizes are the pieces, and popularity is the demand. The dual of the fluid relaxation gives each
//! size a price in GPUs. The prices of no cutting pattern add up to more than 1, and demand is most
//! expensive at these prices. A size that fills GPUs without loss costs its length. A size whose
//! leftover fits no other pod costs the whole GPU. A residual is worth its best pattern at these
//! prices.
//!
//! MIG instances are pieces too, but their placements decide which of them fit together
//! (`mig_partitions`). A GPU is divided either into shares or into instances.

#[cfg(test)]
mod tests;

use super::mig_partitions::MigPartitions;
use super::simplex;
use crate::gpu::{GpuFree, MigProfile, Slices, WHOLE};

/// A GPU's worth.
pub(super) const GPU_VALUE: i64 = 1_000_000;
/// The maximum number of distinct sizes; beyond it sizes are rounded up to a coarser grid.
const MAX_SIZES: usize = 64;
/// The maximum number of added cutting patterns. Tens are enough for any real demand.
const MAX_CUTTING_PATTERNS: usize = 400;
/// Excess over one GPU at which a pattern is added.
const TOLERANCE: f64 = 1e-7;

/// Values of possible residuals of a GPU, in millionths of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Values {
    by_level: Vec<i64>,
    prices: Vec<(u16, i64)>,
    partitions: MigPartitions,
    by_partition: Vec<i64>,
}

/// Demand for GPUs of one model, except whole ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Demands {
    /// Shares: size in thousandths and weight.
    pub(super) shares: Vec<(u16, i64)>,
    /// MIG instances by profile, and weight.
    pub(super) instances: Vec<(MigProfile, i64)>,
}

/// Pieces that a GPU may be cut into: shares first, then instances.
struct Pieces {
    sizes: Vec<u16>,
    partitions: MigPartitions,
}

impl Values {
    /// Values for these demands.
    pub(super) fn of(demands: &Demands) -> Self {
        let shares = sizes(demands.shares.iter().copied());
        let instances = demands.instances.iter().filter(|(_, weight)| *weight > 0);
        let (profiles, weights): (Vec<&MigProfile>, Vec<i64>) =
            instances.map(|(profile, weight)| (profile, *weight)).unzip();
        let sizes: Vec<u16> = shares.iter().map(|(size, _)| *size).collect();
        let gains = gains(shares.iter().map(|(_, weight)| *weight).chain(weights));
        let most = sizes.iter().map(|size| f64::from(WHOLE / size));
        let most =
            most.chain(profiles.iter().map(|profile| f64::from(profile.times_in(Slices::NONE))));
        let mut rows: Vec<Vec<f64>> = Vec::new();
        for (at, most) in most.enumerate() {
            let mut row = vec![0.0; gains.len()];
            row[at] = most.max(1.0);
            rows.push(row);
        }
        let pieces = Pieces { sizes, partitions: MigPartitions::of(profiles.iter().copied()) };
        let mut prices = vec![0.0; gains.len()];
        for _ in 0..MAX_CUTTING_PATTERNS {
            prices = simplex::maximise(&gains, &rows);
            let before = rows.len();
            for (worth, cut) in pieces.best(&prices) {
                if worth > 1.0 + TOLERANCE {
                    rows.push(cut);
                }
            }
            if rows.len() == before {
                break;
            }
        }
        let worth =
            pieces.best(&prices).into_iter().fold(0.0_f64, |most, (worth, _)| most.max(worth));
        let scale = if worth > 1.0 + TOLERANCE { worth } else { 1.0 };
        let prices: Vec<i64> = prices.iter().map(|price| millionths(price / scale)).collect();
        let (shares, instances) = prices.split_at(pieces.sizes.len());
        let by_partition = pieces
            .partitions
            .worths(instances, 0)
            .into_iter()
            .map(|worth| worth.min(GPU_VALUE))
            .collect();
        let prices: Vec<(u16, i64)> =
            pieces.sizes.into_iter().zip(shares.iter().copied()).collect();
        Self { by_level: by_level(&prices), prices, partitions: pieces.partitions, by_partition }
    }

    /// Value of a residual GPU with `milli` thousandths available to shares.
    pub(super) fn left(&self, gpu: &GpuFree, milli: u16) -> i64 {
        match gpu.slices {
            _ if gpu.is_closed => 0,
            Slices::NONE => self.at(milli),
            taken => self.at_partition(taken),
        }
    }

    /// Worth of a GPU of which instances hold these slices.
    pub(super) fn at_partition(&self, taken: Slices) -> i64 {
        self.by_partition.get(self.partitions.index(taken)).copied().unwrap_or(0)
    }

    /// Value of a GPU with this many free thousandths.
    pub(super) fn at(&self, level: u16) -> i64 {
        self.by_level[usize::from(level.min(WHOLE))]
    }

    /// Sizes with their prices, ascending.
    #[cfg(test)]
    pub(super) fn prices(&self) -> &[(u16, i64)] {
        &self.prices
    }
}

impl Pieces {
    /// The best pattern of shares and the best of instances: the price and the number of each
    /// piece.
    fn best(&self, prices: &[f64]) -> [(f64, Vec<f64>); 2] {
        let (of_shares, of_instances) = prices.split_at(self.sizes.len());
        let (shares_worth, mut shares) = best_cut(&self.sizes, of_shares);
        shares.resize(prices.len(), 0.0);
        let (instances_worth, counts) = self.partitions.best(of_instances);
        let mut instances = vec![0.0; self.sizes.len()];
        instances.extend(counts);
        [(shares_worth, shares), (instances_worth, instances)]
    }
}

/// Value of each free level of a GPU in shares at these prices.
fn by_level(prices: &[(u16, i64)]) -> Vec<i64> {
    let mut by_level = vec![0; usize::from(WHOLE) + 1];
    for level in 1..by_level.len() {
        let mut best = by_level[level - 1];
        for (size, price) in prices {
            if let Some(rest) = level.checked_sub(usize::from(*size)) {
                best = best.max(by_level[rest] + price);
            }
        }
        by_level[level] = best.min(GPU_VALUE);
    }
    by_level[usize::from(WHOLE)] = GPU_VALUE;
    by_level
}

/// Sizes ascending, each once, with their weights; rounded up if there are too many.
fn sizes(demands: impl IntoIterator<Item = (u16, i64)>) -> Vec<(u16, i64)> {
    let is_share = |(size, weight): &(u16, i64)| (1..WHOLE).contains(size) && *weight > 0;
    let mut all: Vec<(u16, i64)> = demands.into_iter().filter(is_share).collect();
    for grid in [1, 5, 10, 20, 25] {
        for (size, _) in &mut all {
            *size = size.next_multiple_of(grid).min(WHOLE - 1);
        }
        all.sort_unstable_by_key(|(size, _)| *size);
        all.dedup_by(|(size, weight), (kept, sum)| {
            let is_same = size == kept;
            *sum += if is_same { *weight } else { 0 };
            is_same
        });
        if all.len() <= MAX_SIZES {
            break;
        }
    }
    all
}

#[expect(clippy::cast_precision_loss, reason = "weights are far below 2^53")]
fn gains(weights: impl Iterator<Item = i64> + Clone) -> Vec<f64> {
    let sum: i64 = weights.clone().sum();
    weights.map(|weight| weight as f64 / sum as f64).collect()
}

/// The most valuable pattern of a GPU: an unbounded knapsack.
fn best_cut(sizes: &[u16], prices: &[f64]) -> (f64, Vec<f64>) {
    let whole = usize::from(WHOLE);
    let mut worth = vec![0.0_f64; whole + 1];
    let mut last = vec![None; whole + 1];
    for level in 1..=whole {
        worth[level] = worth[level - 1];
        for (at, (size, price)) in sizes.iter().zip(prices).enumerate() {
            let Some(rest) = level.checked_sub(usize::from(*size)) else { break };
            if worth[rest] + price > worth[level] + EPSILON {
                worth[level] = worth[rest] + price;
                last[level] = Some(at);
            }
        }
    }
    let mut cut = vec![0.0; sizes.len()];
    let mut level = whole;
    while level > 0 {
        match last[level] {
            Some(at) => {
                cut[at] += 1.0;
                level -= usize::from(sizes[at]);
            }
            None => level -= 1,
        }
    }
    (worth[whole], cut)
}

/// Differences of prices that are rounding only.
const EPSILON: f64 = 1e-12;

/// Rounded down, so that prices of a pattern that add up to 1 do so as whole numbers too. A value
/// just below a whole number counts as that number.
#[expect(clippy::cast_possible_truncation, reason = "prices are between 0 and 1")]
fn millionths(price: f64) -> i64 {
    ((price + 1e-10) * 1e6) as i64
}
