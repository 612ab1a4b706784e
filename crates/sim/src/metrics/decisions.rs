use std::time::Duration;

use serde::Serialize;

/// Duration of decisions in microseconds, including the update of the cluster state. Parallel runs
/// slow each other down, so measure with one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct DecisionTimes {
    /// Half of the decisions took no longer.
    pub decision_us_p50: f64,
    /// All but one in a hundred took no longer.
    pub decision_us_p99: f64,
    /// Mean.
    pub decision_us_mean: f64,
    /// The longest.
    pub decision_us_max: f64,
}

impl DecisionTimes {
    /// The quantiles of all durations; 0 without any.
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        // Nearest rank: a time that was measured, not one between two.
        let rank = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times.get(rank - 1).copied().unwrap_or_default()
        };
        let sum: Duration = times.iter().sum();
        let mean = u32::try_from(times.len()).ok().and_then(|count| sum.checked_div(count));
        Self {
            decision_us_p50: micros(rank(50)),
            decision_us_p99: micros(rank(99)),
            decision_us_mean: micros(mean.unwrap_or_default()),
            decision_us_max: micros(rank(100)),
        }
    }
}

/// To a tenth; clocks are no better.
fn micros(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}
