//! When it pays to move a gang away from devices that may fail.
//!
//! A move pays if the loss that it avoids is more than its price:
//!
//! ```text
//! p s G (d + u + q + D/2)  >  G (w + u_m) + v g + B
//! ```

use crate::ONE;

/// A move that is considered. Times are in seconds, `G` and `g` count GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Move {
    /// GPUs of the gang, `G`.
    pub gang: u64,
    /// Share of the risk that the move removes, `s`, in billionths.
    pub risk_removed: u64,
    /// Time until a failure is noticed, `d`.
    pub detection: u64,
    /// Time of a restart after a failure, `u`.
    pub restart: u64,
    /// Time that the gang waits for another node after a failure, `q`.
    pub wait: u64,
    /// Time between two checkpoints, `D`. A failure loses half of it.
    pub interval: u64,
    /// Time to write a checkpoint, `w`.
    pub write: u64,
    /// Time of a planned restart, `u_m`.
    pub planned_restart: u64,
    /// Time of the test of each GPU that is fenced, `v`.
    pub test: u64,
    /// GPUs that are fenced, `g`.
    pub fenced: u64,
    /// Work that is pushed off the spare, in GPU seconds, `B`.
    pub pushed_off: u64,
}

impl Move {
    /// GPU seconds that the move costs, whether or not the devices would fail.
    pub fn price(&self) -> u64 {
        let gang = self.gang.saturating_mul(self.write.saturating_add(self.planned_restart));
        gang.saturating_add(self.test.saturating_mul(self.fenced)).saturating_add(self.pushed_off)
    }

    /// The probability of a failure, in billionths, beyond which the move pays; `None` if it never does.
    pub fn threshold(&self) -> Option<u64> {
        // In half seconds, so that half the interval is whole.
        let time = 2
            * (u128::from(self.detection) + u128::from(self.restart) + u128::from(self.wait))
            + u128::from(self.interval);
        let loss = u128::from(self.gang).saturating_mul(time);
        let avoided = loss.saturating_mul(u128::from(self.risk_removed)) / u128::from(ONE);
        let price = 2 * u128::from(self.price()) * u128::from(ONE);
        let threshold = u64::try_from(price.checked_div(avoided)?).ok()?;
        (threshold < ONE).then_some(threshold)
    }

    /// Whether the move pays at a probability of a failure, in billionths. For a decision take the lower bound of it
    /// ([`crate::risk::Score::at_least`]).
    pub fn pays(&self, probability: u64) -> bool {
        self.threshold().is_some_and(|threshold| probability > threshold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60;

    /// The example of the design: detection 3 min, restart 10 min, checkpoints every 30 min and written in 0.5 min, no wait.
    fn example() -> Move {
        Move {
            gang: 1_024,
            risk_removed: 900_000_000,
            detection: 3 * MINUTE,
            restart: 10 * MINUTE,
            interval: 30 * MINUTE,
            write: 30,
            ..Move::default()
        }
    }

    #[test]
    fn cold_moves_seldom_pay_and_live_ones_often() {
        let cold = Move { planned_restart: 10 * MINUTE, ..example() };
        let in_place = Move { planned_restart: 2 * MINUTE, ..example() };
        let live = Move { planned_restart: 20, write: 0, ..example() };
        let percent = |candidate: Move| candidate.threshold().unwrap() / 100_000;
        assert_eq!([cold, in_place, live].map(percent), [4_166, 992, 132]);
        assert!(cold.pays(420_000_000) && !cold.pays(416_000_000));
    }

    #[test]
    fn tests_and_pushed_off_work_are_part_of_the_price() {
        let live = Move { planned_restart: 20, write: 0, ..example() };
        let dearer = Move { test: 60, fenced: 8, pushed_off: 7_200, ..live };
        assert_eq!(dearer.price(), live.price() + 480 + 7_200);
        assert!(dearer.threshold() > live.threshold());
    }

    #[test]
    fn a_move_that_costs_more_than_a_failure_never_pays() {
        let useless = Move { risk_removed: 0, planned_restart: 1, ..example() };
        assert_eq!(useless.threshold(), None);
        assert!(!useless.pays(ONE));
        let dear = Move { planned_restart: 60 * MINUTE, ..example() };
        assert_eq!(dear.threshold(), None);
        let huge = Move {
            gang: u64::MAX,
            risk_removed: u64::MAX,
            detection: u64::MAX,
            restart: u64::MAX,
            wait: u64::MAX,
            interval: u64::MAX,
            write: u64::MAX,
            planned_restart: u64::MAX,
            test: u64::MAX,
            fenced: u64::MAX,
            pushed_off: u64::MAX,
        };
        huge.pays(ONE);
    }
}
