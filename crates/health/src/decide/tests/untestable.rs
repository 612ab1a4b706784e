//! Devices whose test cannot be tried.

use super::*;
use crate::decide::Wait;

#[test]
fn a_test_that_could_not_be_tried_passes_nothing_fails_nothing_and_comes_again() {
    let mut bench = Bench::new(1, 2, true);
    let advice = Report::Observation(Observation::RecoveryAction(RecoveryAction::DrainP2p));
    let decisions = bench.report([(gpu(0), advice)]);
    assert_eq!(decisions.tests[0].attempt, Attempt(1));
    bench.untestable = Some([DeviceId(0)].into());
    let decisions = bench.report([(gpu(0), ended(1, Outcome::NotTried))]);
    assert_eq!(decisions.waits, [(DeviceId(0), Wait::TestNotPossible)].into());
    assert_eq!((decisions.tests, bench.states()[0]), (vec![], "Fenced"));
    // However long that takes.
    bench.now += 10 * DAY;
    bench.report([]);
    let track = bench.domain.devices[&DeviceId(0)].track;
    assert_eq!(track.state.needs(), Some(Remedy::Test));
    assert!(!track.has_failed && track.tried == Remedy::Test, "nothing is held against it");
    bench.untestable = None;
    let decisions = bench.report([]);
    assert_eq!(decisions.tests[0].attempt, Attempt(2));
    bench.report([(gpu(0), ended(2, Outcome::Passed))]);
    assert_eq!(bench.states()[0], "Probation");
}

#[test]
fn a_device_that_cannot_be_tested_holds_up_no_remedy_in_its_island() {
    let mut bench = Bench::new(1, 2, true);
    let advice = Report::Observation(Observation::RecoveryAction(RecoveryAction::DrainP2p));
    bench.report([(gpu(0), advice)]);
    bench.untestable = Some([DeviceId(0)].into());
    bench.report([(gpu(0), ended(1, Outcome::NotTried))]);
    let decisions = bench.xid(1, 48, 7);
    assert_eq!(decisions.remedies.len(), 1, "{decisions:?}");
}
