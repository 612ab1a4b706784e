use serde::Serialize;

/// A point of a run's curve: the state right after an event.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CurvePoint {
    /// Seconds since the start of the trace, if the run has times.
    pub time: Option<u64>,
    /// Wanted GPUs, as a ratio of all GPUs.
    pub wanted: f64,
    /// Allocated GPUs, as a ratio of all GPUs.
    pub allocated: f64,
    /// Fragments, of all that is free.
    pub fragmentation: f64,
    /// Pods skipped so far.
    pub skipped: usize,
}

/// Points in time of a run with departures.
const TIME_POINTS: u64 = 500;

/// When a point is due: at each whole percent of demand without departures, at equal time steps
/// with departures.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ticks {
    Demand { next_percent: u64 },
    Time { next: u64, step: u64 },
}

impl Ticks {
    pub(super) fn by_demand() -> Self {
        Self::Demand { next_percent: 1 }
    }

    pub(super) fn by_time(first: u64, last: u64) -> Self {
        Self::Time { next: first, step: (last.saturating_sub(first) / TIME_POINTS).max(1) }
    }

    /// Whether a point is due now; then the next one is due later.
    pub(super) fn take_due(&mut self, time: Option<u64>, wanted: u64, capacity: u64) -> bool {
        match self {
            Self::Demand { next_percent } => {
                let percent = wanted.saturating_mul(100).checked_div(capacity).unwrap_or(0);
                let is_due = percent >= *next_percent;
                if is_due {
                    *next_percent = percent + 1;
                }
                is_due
            }
            Self::Time { next, step } => {
                let at = time.unwrap_or_default();
                let is_due = at >= *next;
                if is_due {
                    *next = at - (at - *next) % *step + *step;
                }
                is_due
            }
        }
    }
}
