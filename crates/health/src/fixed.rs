//! Exponential, logarithm and rounded ratios in integers, so that every machine decides the same.
//!
//! Inside, numbers have 60 binary places. The tests compare with `f64`.

use crate::ONE;

/// Binary places of the numbers inside.
const PLACES: u32 = 60;

/// The natural logarithm of 2, with [`PLACES`] binary places.
const LN_2: u128 = 799_144_290_325_165_979;

/// A ratio of this and more makes `e^-ratio` zero for every `u64`.
const NEGLIGIBLE: u64 = 46;

/// `value * e^(-exponent / scale)`, to the nearest. The error is less than 1 for values below 2^50. A scale of 0 counts as 1.
pub(crate) fn decayed(value: u64, exponent: u64, scale: u64) -> u64 {
    let scale = scale.max(1);
    if exponent / scale >= NEGLIGIBLE {
        return 0;
    }
    let ratio = (u128::from(exponent) << PLACES) / u128::from(scale);
    // e^-ratio = 2^-halvings * e^-rest, and rest < ln 2.
    let halvings = u32::try_from(ratio / LN_2).unwrap_or(u32::MAX);
    let rest = ratio % LN_2;
    let (mut sum, mut term, mut degree) = (1_u128 << PLACES, 1_u128 << PLACES, 1);
    while term > 0 {
        term = ((term * rest) >> PLACES) / degree;
        sum = if degree % 2 == 1 { sum - term } else { sum + term };
        degree += 1;
    }
    let product = u128::from(value) * sum;
    let shift = PLACES + halvings;
    if shift >= u128::BITS {
        return 0;
    }
    narrow((product + (1 << (shift - 1))) >> shift)
}

/// The natural logarithm of `numerator / denominator` in billionths, to the nearest; the error is less than 2. A zero counts
/// as 1.
pub(crate) fn ln(numerator: u64, denominator: u64) -> i64 {
    let difference = ln_of(numerator.max(1)) - ln_of(denominator.max(1));
    let billionths = (difference * i128::from(ONE) + (1 << (PLACES - 1))) >> PLACES;
    i64::try_from(billionths).unwrap_or(i64::MAX)
}

/// The natural logarithm of a number of 1 or more, with [`PLACES`] binary places.
fn ln_of(number: u64) -> i128 {
    let doublings = number.ilog2();
    // mantissa = number / 2^doublings, in [1, 2). With z = (mantissa - 1) / (mantissa + 1), at most 1/3, its logarithm is
    // 2 (z + z^3/3 + z^5/5 + ...).
    let one = 1_u128 << PLACES;
    let mantissa = if doublings <= PLACES {
        u128::from(number) << (PLACES - doublings)
    } else {
        u128::from(number) >> (doublings - PLACES)
    };
    let z = ((mantissa - one) << PLACES) / (mantissa + one);
    let square = (z * z) >> PLACES;
    let (mut sum, mut power, mut degree) = (0, z, 1);
    while power > 0 {
        sum += power / degree;
        power = (power * square) >> PLACES;
        degree += 2;
    }
    i128::try_from(2 * sum + u128::from(doublings) * LN_2).unwrap_or(i128::MAX)
}

/// `value * numerator / denominator`, to the nearest, at most `u64::MAX`. A denominator of 0 counts as 1.
pub(crate) fn scaled(value: u64, numerator: u64, denominator: u64) -> u64 {
    let denominator = u128::from(denominator.max(1));
    narrow((u128::from(value) * u128::from(numerator) + denominator / 2) / denominator)
}

/// The square root of a number in billionths, in billionths, rounded down.
pub(crate) fn square_root(billionths: u64) -> u64 {
    narrow((u128::from(billionths) * u128::from(ONE)).isqrt())
}

fn narrow(wide: u128) -> u64 {
    u64::try_from(wide).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
