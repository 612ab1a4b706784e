//! The lower bound beside the exact percentile of the gamma distribution.

use super::*;

/// The 10th percentile of a gamma distribution of mean 1, by bisection over its series.
fn percentile(shape: f64) -> f64 {
    let log_gamma = |x: f64| {
        // Stirling's series, at x + 10.
        let shift: f64 = (0..10).map(|step| (x + f64::from(step)).ln()).sum();
        let z = x + 10.0;
        (z - 0.5) * z.ln() - z + 0.918_938_533_204_672_7 + 1.0 / (12.0 * z)
            - 1.0 / (360.0 * z.powi(3))
            - shift
    };
    let below = |x: f64| {
        let (mut term, mut sum, mut degree) = (1.0 / shape, 1.0 / shape, shape);
        while term > sum * 1e-15 {
            degree += 1.0;
            term *= x / degree;
            sum += term;
        }
        sum * (shape * x.ln() - x - log_gamma(shape)).exp()
    };
    let (mut low, mut high) = (0.0, shape);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if below(middle) < 0.1 { low = middle } else { high = middle }
    }
    low / shape
}

#[test]
fn lower_bounds_are_near_the_percentile_and_too_low_below_one() {
    assert!((percentile(1.0) + 0.9_f64.ln()).abs() < 1e-9, "{}", percentile(1.0));
    let base = Rate(1_000_000_000);
    for thousandths in (10..20_000).step_by(37) {
        let settings = Settings { shape: thousandths * 1_000_000, ..Settings::default() };
        let found = History::default().score(&settings, base, 0).at_least.0 as f64 / 1e9;
        let wanted = percentile(thousandths as f64 / 1e3);
        assert!(found <= wanted + 1e-3, "{thousandths}: {found} {wanted}");
        assert!(found >= wanted - 12e-3, "{thousandths}: {found} {wanted}");
    }
}
