//! What a pod or gang loses by a failure, where it does not say so.

use octavo_engine::gang::Gang;
use octavo_health::DAY;
use octavo_health::risk::Rate;

/// Seconds that writing a checkpoint is taken to stop a job.
const CHECKPOINT: u64 = 60;
/// The longest time between checkpoints. Jobs of few GPUs fail so seldom that the formula would have days.
const LONGEST_INTERVAL: u64 = 3600;
/// Seconds until a job computes again after a failure.
const RESTART: u64 = 600;

/// Seconds of work that a gang loses when a member fails: half the time between two checkpoints, plus the
/// restart. How long ago the last checkpoint was is not known to the API.
///
/// The time between checkpoints is the best one by Young's formula (CACM 17, 1974): `sqrt(2 C M)` with the
/// time `C` to write one and the mean time `M` between failures. That is the inverse of the GPUs' rates.
pub(in crate::state) fn estimated(gang: &Gang) -> u32 {
    let gpus = |group: &octavo_engine::gang::Group| {
        u64::from(group.shape.gpus.count()) * u64::from(group.count)
    };
    let gpus: u64 = gang.groups.iter().map(gpus).sum();
    if gpus == 0 {
        return 0;
    }
    // A rate is in billionths a day.
    let between_failures = DAY * 1_000_000_000 / (Rate::GPU.0 * gpus).max(1);
    let interval = (2 * CHECKPOINT * between_failures).isqrt().min(LONGEST_INTERVAL);
    u32::try_from(interval / 2 + RESTART).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use octavo_engine::shape::GpuDemand;
    use octavo_engine::{Resources, Shape};

    use super::*;

    #[test]
    fn large_gangs_write_checkpoints_more_often_and_lose_less_time() {
        for (members, seconds) in [(1, 2400), (64, 2400), (512, 1914), (2048, 1257), (0, 0)] {
            let shape = Shape::new(Resources::default(), GpuDemand::Whole { count: 8 });
            assert_eq!(estimated(&Gang::new("g", shape, members)), seconds, "{members} x 8 GPUs");
        }
    }
}
