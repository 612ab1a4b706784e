//! How many spare nodes a domain needs.

use crate::fixed::scaled;
use crate::risk::Rate;
use crate::{DAY, ONE};

/// Quantile that the spares cover, in hundredths.
const COVERED: u128 = 99;

/// Binary places of the weights inside.
const PLACES: u32 = 60;

/// The number of nodes of which, with a probability of 99%, no more fail before they are replaced. That is the 99th percentile
/// of a binomial distribution. `refill` is the time until a failed node is replaced, in seconds; `rate` is that of a node.
///
/// A node fails with the probability `rate * refill`, in billionths. That is a little more than `1 - e^-(rate * refill)`: spares
/// fail, too.
pub fn needed(nodes: u32, rate: Rate, refill: u64) -> u32 {
    let fails = u128::from(scaled(rate.0, refill, DAY).min(ONE));
    let lives = u128::from(ONE) - fails;
    if fails == 0 || lives == 0 {
        return if fails == 0 { 0 } else { nodes };
    }
    // Weights of the numbers of failures, relative to that of a number near the most likely one: none is larger than a few
    // times it, and those that vanish do not matter.
    let all = u128::from(nodes);
    let peak = (all + 1) * fails / u128::from(ONE);
    let one = 1_u128 << PLACES;
    let mut below = Vec::new();
    let (mut weight, mut number) = (one, peak.min(all));
    while number > 0 && weight > 0 {
        weight = weight * (number * lives) / ((all - number + 1) * fails);
        below.push(weight);
        number -= 1;
    }
    let least = number;
    let mut weights: Vec<u128> = below.into_iter().rev().collect();
    weights.push(one);
    let (mut weight, mut number) = (one, peak.min(all));
    while number < all && weight > 0 {
        weight = weight * ((all - number) * fails) / ((number + 1) * lives);
        weights.push(weight);
        number += 1;
    }
    let total: u128 = weights.iter().sum();
    let mut sum = 0;
    let covered = weights.iter().position(|weight| {
        sum += weight;
        sum * 100 >= total * COVERED
    });
    let covered = covered.and_then(|covered| u128::try_from(covered).ok()).unwrap_or_default();
    u32::try_from(least + covered).unwrap_or(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HOUR;

    /// 6.5 failures of nodes in 1,000 days (Meta RSC-1, arXiv 2410.21680).
    const RSC_1: Rate = Rate(6_500_000);

    /// The first is close: three nodes cover 98.993%, and with the probability `1 - e^-0.0065` they would cover 99.004%.
    #[test]
    fn the_examples_of_the_design() {
        assert_eq!(needed(128, RSC_1, DAY), 4);
        assert_eq!(needed(1_024, RSC_1, DAY), 13);
        assert_eq!(needed(1_024, RSC_1, HOUR), 2);
    }

    #[test]
    fn extremes() {
        assert_eq!(needed(0, RSC_1, DAY), 0);
        assert_eq!(needed(100, Rate(0), DAY), 0);
        assert_eq!(needed(100, RSC_1, 0), 0);
        assert_eq!(needed(100, Rate(u64::MAX), u64::MAX), 100);
        assert_eq!(needed(1, RSC_1, DAY), 0);
        assert_eq!(needed(1, RSC_1, 2 * DAY), 1);
    }

    #[test]
    fn percentiles_are_those_of_floats() {
        for (nodes, seconds) in
            [(1, DAY), (7, 3 * DAY), (50, HOUR), (300, 40 * DAY), (10_000, DAY), (3, 100 * DAY)]
        {
            let fails = 0.0065 * f64::from(u32::try_from(seconds / HOUR).unwrap()) / 24.0;
            let mut weight = f64::from(nodes) * (-fails).ln_1p();
            let (mut sum, mut number) = (weight.exp(), 0);
            while sum < 0.99 {
                weight += (f64::from(nodes - number) / f64::from(number + 1) * fails
                    / (1.0 - fails))
                    .ln();
                sum += weight.exp();
                number += 1;
            }
            assert_eq!(needed(nodes, RSC_1, seconds), number, "{nodes} nodes, {seconds} s");
        }
    }
}
