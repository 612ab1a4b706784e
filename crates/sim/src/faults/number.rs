//! Conversions between counts, milliseconds and floating-point numbers.

/// A count or a time as a floating-point number; exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts and milliseconds are far below 2^53")]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}

/// A length as a floating-point number.
pub(super) fn count(number: usize) -> f64 {
    float(number as u64)
}

/// The nearest whole number: 0 for negative ones, the largest for infinity.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, which is what is wanted"
)]
pub(super) fn whole(number: f64) -> u64 {
    number.round() as u64
}
