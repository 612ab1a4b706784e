#![expect(clippy::cast_precision_loss, reason = "comparison with f64")]

use proptest::prelude::*;

use super::{decayed, ln, scaled, square_root};
use crate::ONE;

/// Beside the error that the function states, `f64` itself is off by up to some 1e-14 of the value.
fn is_near(found: u64, wanted: f64) -> bool {
    (found as f64 - wanted).abs() <= 1.0 + wanted * 1e-13
}

proptest! {
    #[test]
    fn decay_is_that_of_floats(value in 0..1_u64 << 50, exponent in 0..5_000_000_u64, scale in 1..2_000_000_u64) {
        let wanted = value as f64 * (-(exponent as f64) / scale as f64).exp();
        prop_assert!(is_near(decayed(value, exponent, scale), wanted), "{wanted}");
    }

    #[test]
    fn decay_is_total_and_never_grows(value: u64, exponent: u64, scale: u64) {
        prop_assert!(decayed(value, exponent, scale) <= value);
    }

    #[test]
    fn logarithms_are_those_of_floats(numerator in 1_u64.., denominator in 1_u64..) {
        let wanted = ((numerator as f64).ln() - (denominator as f64).ln()) * 1e9;
        prop_assert!((ln(numerator, denominator) as f64 - wanted).abs() < 2.0, "{wanted}");
    }

    #[test]
    fn roots_are_those_of_integers(billionths: u64) {
        let root = u128::from(square_root(billionths));
        let square = u128::from(billionths) * u128::from(ONE);
        prop_assert!(root * root <= square && (root + 1) * (root + 1) > square);
    }
}

#[test]
fn known_values() {
    assert_eq!(decayed(ONE, 0, 1), ONE);
    assert_eq!(decayed(ONE, 1, 1), 367_879_441);
    assert_eq!(decayed(ONE, 14, 14), 367_879_441);
    assert_eq!(decayed(ONE, 21, 1), 1);
    assert_eq!(decayed(ONE, 22, 1), 0);
    assert_eq!(decayed(u64::MAX, 46, 1), 0);
    assert_eq!(decayed(7, 3, 0), decayed(7, 3, 1));
    assert_eq!(ln(2, 1), 693_147_181);
    assert_eq!(ln(1, 2), -693_147_181);
    assert_eq!(ln(10, 10), 0);
    assert_eq!(ln(0, 0), 0);
    assert_eq!(scaled(10, 1, 4), 3);
    assert_eq!(scaled(u64::MAX, u64::MAX, 1), u64::MAX);
    assert_eq!(square_root(2 * ONE), 1_414_213_562);
}
