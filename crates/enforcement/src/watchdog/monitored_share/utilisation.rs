//! How much of the time the GPU works for a share, as its containers see it.

use std::time::Duration;

use octavo_guard_abi::LIMITS_FILE;

use super::MonitoredShare;

/// Time over which the utilisation is taken. NVML takes up to a second.
const WINDOW: Duration = Duration::from_secs(1);

/// Time that the share had used at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedTime {
    at: Duration,
    used: Duration,
}

/// Part of the time between two moments, in thousandths. `None` within [`WINDOW`], or if less was used than before: a new thread counts from zero.
fn permille(before: UsedTime, now: UsedTime) -> Option<u32> {
    let passed = now.at.checked_sub(before.at).filter(|passed| *passed >= WINDOW)?;
    let used = now.used.checked_sub(before.used)?;
    let permille = used.as_nanos() * 1000 / passed.as_nanos();
    Some(u32::try_from(permille).unwrap_or(u32::MAX).min(1000))
}

impl MonitoredShare {
    /// Lets the share's containers see how much of the last second the GPU worked for it, given how much time it has used so far. `None`: nothing measures it.
    pub(in crate::watchdog) fn show_utilisation(&mut self, at: Duration, used: Option<Duration>) {
        let Some(open) = &self.open else { return };
        let now = used.map(|used| UsedTime { at, used });
        let shown = match (self.used_time, now) {
            (None, None) => return,
            (_, None) => None,
            (Some(before), Some(now)) if now.at < before.at + WINDOW && now.used >= before.used => {
                return;
            }
            (before, Some(now)) => before.and_then(|before| permille(before, now)),
        };
        self.used_time = now;
        if let Err(error) = open.limits.set_utilisation(shown) {
            self.warn_once(&format!("its {LIMITS_FILE} cannot be written"), &error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64, used: u64) -> UsedTime {
        UsedTime { at: Duration::from_millis(milliseconds), used: Duration::from_millis(used) }
    }

    #[test]
    fn it_is_the_part_of_the_time_that_was_used() {
        assert_eq!(permille(at(0, 0), at(1000, 300)), Some(300));
        assert_eq!(permille(at(500, 700), at(2500, 1700)), Some(500));
        assert_eq!(permille(at(0, 0), at(1000, 0)), Some(0));
        // Several processes of a share never show more than the whole time.
        assert_eq!(permille(at(0, 0), at(1000, 1100)), Some(1000));
    }

    #[test]
    fn too_short_a_time_and_counters_that_began_again_give_no_figure() {
        assert_eq!(permille(at(0, 0), at(999, 300)), None);
        assert_eq!(permille(at(0, 500), at(1000, 100)), None);
        assert_eq!(permille(at(2000, 0), at(1000, 100)), None);
    }
}
