//! The check of computing: every multiprocessor multiplies the same matrices again and again, and compares with the products that
//! the host's processor has computed.

use std::time::{Duration, Instant};

use super::gpu::{Buffer, Stop, TestGpu};
use super::kernels::{MATRIX_SETS, MATRIX_SIDE};
use super::memory::by_second;
use super::patterns::hash;
use super::report::{ComputeNumbers, WrongElement};

/// Elements of a matrix.
const ELEMENTS: usize = MATRIX_SIDE * MATRIX_SIDE;
/// Rounds of a launch double while it takes less.
const LAUNCH_TIME: Duration = Duration::from_millis(10);
/// Most rounds of a launch.
const MAX_ROUNDS: u32 = 1 << 16;
/// Numbers of multiprocessors are lower: they may have gaps.
const MAX_MULTIPROCESSORS: usize = 4096;
/// Multiplications and additions of a product, each in whole numbers and in binary fractions.
const OPERATIONS: u64 = 4 * (MATRIX_SIDE * ELEMENTS) as u64;

/// Computes until the time is over, and at least once. Returns the numbers so far, too, if it ends early.
pub(super) fn check(gpu: &TestGpu<'_>, time: Duration) -> (ComputeNumbers, Result<(), Stop>) {
    let multiprocessors = gpu.multiprocessors;
    let mut numbers = ComputeNumbers { multiprocessors, ..ComputeNumbers::default() };
    let result = compute(gpu, time, &mut numbers);
    (numbers, result)
}

fn compute(gpu: &TestGpu<'_>, time: Duration, numbers: &mut ComputeNumbers) -> Result<(), Stop> {
    let began = Instant::now();
    let matrices = Buffer::with(gpu, &bytes(&matrices()))?;
    let result = Buffer::with(gpu, &[0; 32])?;
    let seen = Buffer::with(gpu, &vec![0; MAX_MULTIPROCESSORS * 4])?;
    let (mut rounds, mut spent) = (1, Duration::ZERO);
    for launch in 0.. {
        if launch > 0 && began.elapsed() >= time {
            break;
        }
        let (products, took) = gpu.multiply(&matrices, (launch, rounds), &result, &seen)?;
        numbers.products += products;
        spent += took;
        if took < LAUNCH_TIME {
            rounds = (rounds * 2).min(MAX_ROUNDS);
        }
    }
    numbers.operation_rate = by_second(numbers.products * OPERATIONS, spent);
    let used = words(&seen.read()?).filter(|mark| *mark != 0).count();
    numbers.used_multiprocessors = u32::try_from(used).unwrap_or(u32::MAX);
    note(&result.read()?, numbers);
    Ok(())
}

/// Reads what the kernel found: a count of 8 bytes, then the first multiprocessor with the element, its expected and its found value.
fn note(result: &[u8], numbers: &mut ComputeNumbers) {
    let mut words = words(result).map(u64::from);
    let mut next = || words.next().unwrap_or(0);
    numbers.wrong_elements = next() | next() << 32;
    if numbers.wrong_elements > 0 {
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        numbers.first = Some(WrongElement {
            multiprocessor: small(next()),
            element: small(next()),
            expected: format!("{:#x}", next()),
            found: format!("{:#x}", next()),
        });
    }
}

/// For each set the two matrices, and their product as the kernel computes it: the bits of the sums of binary fractions, changed by those
/// of whole numbers. Elements are between 1 and 2.
fn matrices() -> Vec<u32> {
    let mut all = Vec::new();
    for set in 0..MATRIX_SETS {
        let element = |place: usize| {
            let random = hash((set * 2 * ELEMENTS + place) as u64 + 1);
            0x3f80_0000 | u32::try_from(random >> 41).unwrap_or(0)
        };
        let factors: Vec<u32> = (0..2 * ELEMENTS).map(element).collect();
        let (left, right) = factors.split_at(ELEMENTS);
        let product = (0..ELEMENTS).map(|place| {
            let (row, column) = (place / MATRIX_SIDE, place % MATRIX_SIDE);
            let pairs = (0..MATRIX_SIDE)
                .map(|k| (left[row * MATRIX_SIDE + k], right[k * MATRIX_SIDE + column]));
            product_of(pairs)
        });
        let product: Vec<u32> = product.collect();
        all.extend(factors);
        all.extend(product);
    }
    all
}

/// An element of a product. A fused multiplication is the same on all processors (IEEE 754).
fn product_of(pairs: impl Iterator<Item = (u32, u32)>) -> u32 {
    let (fraction, whole) = pairs.fold((0.0_f32, 0_u32), |(fraction, whole), (x, y)| {
        let fraction = f32::from_bits(x).mul_add(f32::from_bits(y), fraction);
        (fraction, x.wrapping_mul(y).wrapping_add(whole))
    });
    fraction.to_bits() ^ whole
}

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes
        .chunks_exact(4)
        .map(|word| word.iter().rev().fold(0, |number: u32, byte| number << 8 | u32::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_fractions_and_whole_numbers_are_in_one_value() {
        let one = 1.0_f32.to_bits();
        let pairs = [(one, 1.5_f32.to_bits()), (one, 1.25_f32.to_bits())];
        let whole = pairs.iter().fold(0_u32, |sum, (x, y)| sum.wrapping_add(x.wrapping_mul(*y)));
        assert_eq!(product_of(pairs.into_iter()) ^ whole, 2.75_f32.to_bits());
    }

    #[test]
    fn any_bit_of_a_factor_changes_the_product() {
        let pairs: Vec<(u32, u32)> =
            (0..32).map(|k| (0x3f80_0000 + k * 77_777, 0x3f90_0000 + k * 33_333)).collect();
        let right = product_of(pairs.iter().copied());
        for bit in 0..23 {
            let mut wrong = pairs.clone();
            wrong[7].0 ^= 1 << bit;
            assert_ne!(product_of(wrong.into_iter()), right, "bit {bit}");
        }
    }

    #[test]
    fn sets_differ_and_have_the_kernels_size() {
        let all = matrices();
        assert_eq!(all.len() * 4, MATRIX_SETS * 12_288);
        assert_ne!(all[..ELEMENTS], all[3 * ELEMENTS..4 * ELEMENTS]);
        assert!(all[..2 * ELEMENTS].iter().all(|e| (1.0..2.0).contains(&f32::from_bits(*e))));
    }
}
