//! Devices that pods leave before they fail.

use super::*;
use crate::policy::PreventiveDrain;

/// A device that works, and pods on it, after some failures of its own, each of another job. `probability` is in billionths.
fn after_failures(probability: Option<u64>, failures: u64) -> (Bench, Decisions) {
    let mut bench = Bench::new(1, 2, true);
    let drain = |probability| PreventiveDrain { probability, horizon: 7 * DAY };
    bench.policy.preventive_drain = probability.map(drain);
    bench.occupy([0]);
    let mut decisions = Decisions::default();
    for job in 0..failures {
        // A contained memory error: the job ends, and the device works.
        decisions = bench.xid(0, 94, job);
    }
    (bench, decisions)
}

/// Failures until pods leave.
fn failures_until_suspect(probability: u64) -> Option<u64> {
    (1..100).find(|failures| {
        let (_, decisions) = after_failures(Some(probability), *failures);
        decisions.fences[&DeviceId(0)].effect == Effect::NoSchedule
    })
}

#[test]
fn pods_leave_a_device_that_will_likely_fail_and_it_is_tested() {
    let (_, decisions) = after_failures(None, 20);
    assert_eq!(decisions.fences[&DeviceId(0)].effect, Effect::None, "it is not asked for");
    assert_eq!(decisions.drains, []);

    let failures = failures_until_suspect(13_200_000).unwrap();
    let (mut bench, decisions) = after_failures(Some(13_200_000), failures);
    let fence = decisions.fences[&DeviceId(0)];
    assert_eq!((fence.effect, fence.reason), (Effect::NoSchedule, Some(Reason::HighRisk)));
    assert_eq!((decisions.drains, decisions.evictions), (vec![DeviceId(0)], vec![]));
    bench.occupy([]);
    let attempt = Attempt(1);
    let decisions = bench.report([]);
    assert_eq!(decisions.tests[0].attempt, attempt);
    bench.report([(gpu(0), ended(1, Outcome::Passed))]);
    assert_eq!(bench.states()[0], "Probation");
    // The risk is still high, and the test has shown what a test can show.
    bench.now += HOUR;
    let decisions = bench.report([]);
    assert_eq!((decisions.drains, decisions.tests), (vec![], vec![]));
    assert_eq!(bench.states()[0], "Probation");
}

#[test]
fn the_dearer_a_move_the_more_failures_come_first() {
    // The second is that of the default times after an hour in a queue, and the third that of the default times.
    let failures = [13_200_000, 44_191_919, 138_888_888].map(failures_until_suspect);
    assert_eq!(failures, [Some(3), Some(7), Some(18)]);
    let (_, decisions) = after_failures(Some(999_999_999), 1);
    assert_eq!(decisions.drains, []);
}

#[test]
fn a_part_of_the_blame_counts_as_a_part() {
    let (mut bench, _) = after_failures(Some(13_200_000), 0);
    bench.occupy([0, 1]);
    let suspects: Vec<_> = [0, 1].map(DeviceId).into();
    let failed = || Report::Observation(Observation::JobFailed { suspects: suspects.clone() });
    let both = failures_until_suspect(13_200_000).unwrap();
    for _ in 0..both {
        assert_eq!(bench.report([(Unit::Node(0), failed())]).drains, []);
    }
    let later = (0..2 * both).map(|_| bench.report([(Unit::Node(0), failed())]).drains);
    assert!(later.into_iter().any(|drains| drains == suspects));
}
