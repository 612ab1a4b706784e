//! When learned demand is put to use, and when it is forgotten.

use super::demand_stats::DemandStats;

/// Arrivals before the second model; the first model is built at once.
const SECOND_MODEL_ARRIVALS: u64 = 50;
/// The model may be rebuilt when arrivals have grown by one part in this number.
const GROWTH_DIVISOR: u64 = 5;
/// The model is rebuilt if this many thousandths of pods have changed shape.
const DRIFT_MILLI: i64 = 25;
/// After arrivals that fill the cluster this many times, learned weights have lost a third.
const FORGET_FILLS: u64 = 1;
/// Steps in which that is forgotten: what [`DemandStats::forget`] takes is a sixteenth.
const FORGET_STEPS: u64 = 6;
/// The fewest arrivals between two steps.
const MIN_STEP: u64 = 200;

/// When to learn and to forget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) arrivals: u64,
    /// Arrivals at which the model may be rebuilt.
    pub(super) next: u64,
    /// Arrivals between two steps of forgetting; none before the first model.
    pub(super) step: Option<u64>,
    pub(super) since_step: u64,
}

impl Schedule {
    /// A pod has arrived and was counted.
    pub(super) fn arrived(&mut self, demand_stats: &mut DemandStats) {
        self.arrivals += 1;
        self.since_step += 1;
        if self.step.is_some_and(|step| self.since_step >= step) {
            self.since_step = 0;
            demand_stats.forget();
        }
    }

    /// Whether it is time for other tables than those of popularity `then`.
    pub(super) fn check_due(&mut self, demand_stats: &DemandStats, then: &DemandStats) -> bool {
        if self.arrivals < self.next {
            return false;
        }
        let is_due = demand_stats.drift_milli(then) >= DRIFT_MILLI;
        if !is_due {
            self.wait();
        }
        is_due
    }

    /// A new model was built for a cluster that holds `pods_to_fill` pods when empty.
    pub(super) fn learned(&mut self, pods_to_fill: u64) {
        self.step = Some((pods_to_fill * FORGET_FILLS / FORGET_STEPS).max(MIN_STEP));
        self.wait();
    }

    fn wait(&mut self) {
        let growth = self.arrivals / GROWTH_DIVISOR;
        let most = self.step.map_or(u64::MAX, |step| step.saturating_mul(2));
        self.next = (self.arrivals + growth.min(most).max(1)).max(SECOND_MODEL_ARRIVALS);
    }
}
