use std::time::Duration;

use super::published_bin::PublishedBin;
use super::summary::Spread;
use super::*;

#[test]
fn published_figure_is_the_mean_over_arrivals_of_its_percent() {
    let mut bin = PublishedBin::at(1.3);
    // Of 100 GPUs: 129.5 rounds half to even, to 130; 130.5 to 130, too.
    for (arrived, used) in
        [(129_400, 10_000), (129_500, 90_000), (130_000, 91_000), (130_500, 92_004)]
    {
        bin.note(arrived, used, 100);
    }
    assert_eq!(bin.finish(), Some(0.91), "90, 91 and 92.004, which is 92.00");
}

#[test]
fn the_published_figure_falls_back_on_the_percents_beside_it() {
    let mut bin = PublishedBin::at(1.3);
    bin.note(127_900, 70_000, 100);
    assert_eq!(bin.finish(), None);
    bin.note(128_900, 80_000, 100);
    bin.note(131_000, 82_000, 100);
    assert_eq!(bin.finish(), Some(0.81));
}

#[test]
fn times_are_nearest_ranks() {
    let times = |micros: std::ops::RangeInclusive<u64>| {
        DecisionTimes::of(micros.rev().map(Duration::from_micros).collect())
    };
    let hundred = times(1..=100);
    assert_eq!((hundred.decision_us_p50, hundred.decision_us_p99), (50.0, 99.0));
    assert_eq!((hundred.decision_us_mean, hundred.decision_us_max), (50.5, 100.0));
    let one = times(7..=7);
    assert_eq!((one.decision_us_p50, one.decision_us_p99, one.decision_us_mean), (7.0, 7.0, 7.0));
    assert_eq!(DecisionTimes::of(Vec::new()), DecisionTimes::default());
}

#[test]
fn spread_is_that_of_a_sample() {
    let spread = Spread::of([Some(1.0), None, Some(3.0), Some(2.0)]).unwrap();
    let expected = Spread { mean: 2.0, sd: 1.0, min: 1.0, max: 3.0, runs: 3 };
    assert_eq!(spread, expected);
    assert_eq!(Spread::of([Some(5.0)]).map(|spread| spread.sd), Some(0.0));
    assert_eq!(Spread::of([None, None]), None);
}
