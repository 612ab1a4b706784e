//! The 607 words that Go mixes into every seed, computed instead of listed.
//!
//! Go's `rngCooked` is the state of the same generator, filled from seed 1, after 7.8·10¹² steps.
//! (`gen_cooked.go` in Go's source computes it in hours.) The generator is linear modulo 2⁶⁴: its
//! words follow x(k) = x(k-607) + x(k-273), with the characteristic polynomial z⁶⁰⁷ - z³³⁴ - 1. The
//! power of z by the number of steps, modulo that polynomial, gives the coefficients. They say
//! which words of the start sum to a word of the end. Squaring computes the power in 43 rounds.

use std::sync::LazyLock;

use super::{LENGTH, SeedGenerator, TAP};

/// Steps from the start to Go's table.
const STEPS: u64 = 7_800_000_000_000;

/// The table in the order of Go's array.
pub(super) static WORDS: LazyLock<[u64; LENGTH]> = LazyLock::new(|| {
    let mut spread = SeedGenerator::new(1);
    // The shifts are those of Go's table maker, not those of Go's Seed.
    let start: [u64; LENGTH] = std::array::from_fn(|_| {
        let high = u64::from(spread.next()) << 20;
        let middle = u64::from(spread.next()) << 10;
        high ^ middle ^ u64::from(spread.next())
    });
    jump(&start, STEPS)
});

/// The array after `steps` steps of the generator that starts at `array` as Go's sources start:
/// the first step writes the word before the one at `LENGTH - TAP`.
fn jump(array: &[u64; LENGTH], steps: u64) -> [u64; LENGTH] {
    // Step k writes the word at (LENGTH - TAP - 1 - k) mod LENGTH. The words in the array before
    // step 0 therefore belong to the steps -607 to -1.
    let place = |step: u64| {
        let back = usize::try_from(step % LENGTH as u64).unwrap_or(0);
        (2 * LENGTH - TAP - 1 - back) % LENGTH
    };
    // In time order, extended by as many words as the coefficients reach.
    let mut words: Vec<u64> = (0..LENGTH as u64).map(|step| array[place(step)]).collect();
    for index in LENGTH..2 * LENGTH {
        words.push(words[index - LENGTH].wrapping_add(words[index - TAP]));
    }
    let power = power_of_z(steps);
    let mut after = [0; LENGTH];
    for index in 0..LENGTH {
        let word = power
            .iter()
            .zip(&words[index..])
            .fold(0u64, |sum, (factor, word)| sum.wrapping_add(factor.wrapping_mul(*word)));
        after[place(steps.wrapping_add(index as u64))] = word;
    }
    after
}

/// z to the given power modulo the characteristic polynomial, lowest coefficient first.
fn power_of_z(exponent: u64) -> Vec<u64> {
    let mut power = vec![0; LENGTH];
    power[0] = 1;
    for bit in (0..u64::BITS - exponent.leading_zeros()).rev() {
        power = square(&power);
        if exponent >> bit & 1 == 1 {
            power.insert(0, 0);
            reduce(&mut power);
        }
    }
    power
}

fn square(power: &[u64]) -> Vec<u64> {
    let mut product = vec![0u64; 2 * LENGTH - 1];
    for (shift, factor) in power.iter().enumerate().filter(|(_, factor)| **factor != 0) {
        for (sum, other) in product[shift..].iter_mut().zip(power) {
            *sum = sum.wrapping_add(factor.wrapping_mul(*other));
        }
    }
    reduce(&mut product);
    product
}

/// Replaces every power from z⁶⁰⁷ up by z⁶⁰⁷ = z³³⁴ + 1, highest first.
fn reduce(polynomial: &mut Vec<u64>) {
    while polynomial.len() > LENGTH {
        let Some(factor) = polynomial.pop() else { return };
        let degree = polynomial.len();
        for lower in [degree - TAP, degree - LENGTH] {
            polynomial[lower] = polynomial[lower].wrapping_add(factor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jump_lands_where_single_steps_lead() {
        let start: [u64; LENGTH] = std::array::from_fn(|index| (index as u64).wrapping_mul(0x9e37));
        for steps in [0, 1, 2, 272, 273, 606, 607, 608, 1_000, 12_345] {
            let (mut walked, mut tap, mut feed) = (start, 0, LENGTH - TAP);
            for _ in 0..steps {
                tap = (tap + LENGTH - 1) % LENGTH;
                feed = (feed + LENGTH - 1) % LENGTH;
                walked[feed] = walked[feed].wrapping_add(walked[tap]);
            }
            assert_eq!(jump(&start, steps), walked, "after {steps} steps");
        }
    }

    /// The ends of the table in Go's source: `-4181792142133755926` and `4152330101494654406`.
    #[test]
    fn the_table_is_that_of_gos_source() {
        assert_eq!(WORDS[0].cast_signed(), -4_181_792_142_133_755_926);
        assert_eq!(WORDS[1].cast_signed(), -4_576_982_950_128_230_565);
        assert_eq!(WORDS[LENGTH - 1].cast_signed(), 4_152_330_101_494_654_406);
    }
}
