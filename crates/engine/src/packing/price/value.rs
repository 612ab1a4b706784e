//! What is left of a GPU is worth as much as the demand that can still be cut from it.
//!
//! Cutting GPUs into shares is the cutting-stock problem: GPUs are stock of length 1000, sizes of
//! shares the pieces, shapes' popularity the demand. The dual of its fluid relaxation gives each
//! size a price, in GPUs: the prices of no way to cut a GPU add up to more than 1, and demand at
//! these prices costs most. A size that fills GPUs without loss is priced as its length; one that
//! leaves what nobody else fits, as the whole GPU that it takes. What is left of a GPU is worth the
//! best cut of it at these prices.

#[cfg(test)]
mod tests;

use super::simplex;
use crate::gpu::WHOLE;

/// A GPU's worth.
pub(super) const GPU: i64 = 1_000_000;
/// Most sizes that are told apart; beyond it sizes are rounded up to a coarser grid.
const MOST_SIZES: usize = 64;
/// Ways to cut that are added at most. Tens are enough for any real demand.
const MOST_CUTS: usize = 400;
/// Prices of a cut may exceed a GPU by so much before the cut is added.
const TOLERANCE: f64 = 1e-7;

/// Worth of each free level of a GPU, in millionths of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Values {
    by_level: Vec<i64>,
    prices: Vec<(u16, i64)>,
}

impl Values {
    /// Values for these demands: size in thousandths and weight. Whole GPUs do not matter here.
    pub(super) fn of(demands: impl IntoIterator<Item = (u16, i64)>) -> Self {
        let demands = sizes(demands);
        let sizes: Vec<u16> = demands.iter().map(|(size, _)| *size).collect();
        let gains = gains(&demands);
        let mut rows: Vec<Vec<f64>> = Vec::new();
        for (at, size) in sizes.iter().enumerate() {
            let mut row = vec![0.0; sizes.len()];
            row[at] = f64::from(WHOLE / size);
            rows.push(row);
        }
        let mut prices = vec![0.0; sizes.len()];
        for _ in 0..MOST_CUTS {
            prices = simplex::maximise(&gains, &rows);
            let (worth, cut) = best_cut(&sizes, &prices);
            if worth <= 1.0 + TOLERANCE {
                break;
            }
            rows.push(cut);
        }
        let (worth, _) = best_cut(&sizes, &prices);
        let scale = if worth > 1.0 + TOLERANCE { worth } else { 1.0 };
        let price = |price: &f64| millionths(price / scale);
        Self::at_prices(sizes.into_iter().zip(prices.iter().map(price)).collect())
    }

    fn at_prices(prices: Vec<(u16, i64)>) -> Self {
        let mut by_level = vec![0; usize::from(WHOLE) + 1];
        for level in 1..by_level.len() {
            let mut best = by_level[level - 1];
            for (size, price) in &prices {
                if let Some(rest) = level.checked_sub(usize::from(*size)) {
                    best = best.max(by_level[rest] + price);
                }
            }
            by_level[level] = best.min(GPU);
        }
        by_level[usize::from(WHOLE)] = GPU;
        Self { by_level, prices }
    }

    /// Worth of a GPU of which so many thousandths are free.
    pub(super) fn at(&self, level: u16) -> i64 {
        self.by_level[usize::from(level.min(WHOLE))]
    }

    /// Sizes with their prices, ascending.
    #[cfg(test)]
    pub(super) fn prices(&self) -> &[(u16, i64)] {
        &self.prices
    }
}

/// Sizes ascending, each once, with their weights; rounded up where there are too many.
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
        if all.len() <= MOST_SIZES {
            break;
        }
    }
    all
}

#[expect(clippy::cast_precision_loss, reason = "weights are far below 2^53")]
fn gains(demands: &[(u16, i64)]) -> Vec<f64> {
    let sum: i64 = demands.iter().map(|(_, weight)| weight).sum();
    demands.iter().map(|(_, weight)| *weight as f64 / sum as f64).collect()
}

/// The cut of a GPU whose pieces have the highest price: an unbounded knapsack.
fn best_cut(sizes: &[u16], prices: &[f64]) -> (f64, Vec<f64>) {
    let whole = usize::from(WHOLE);
    let mut worth = vec![0.0_f64; whole + 1];
    let mut last = vec![None; whole + 1];
    for level in 1..=whole {
        worth[level] = worth[level - 1];
        for (at, (size, price)) in sizes.iter().zip(prices).enumerate() {
            let Some(rest) = level.checked_sub(usize::from(*size)) else { break };
            if worth[rest] + price > worth[level] + NOTHING {
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
const NOTHING: f64 = 1e-12;

/// Rounded down, so that prices of a cut that add up to 1 do so as whole numbers too; what is a
/// hair below a whole number is that number.
#[expect(clippy::cast_possible_truncation, reason = "prices are between 0 and 1")]
fn millionths(price: f64) -> i64 {
    ((price + 1e-10) * 1e6) as i64
}
