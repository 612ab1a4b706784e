//! Remedies that were refused.

use super::*;

#[test]
fn after_a_refused_remedy_only_those_that_needed_it_climb_the_ladder() {
    let mut bench = Bench::new(1, 4, true);
    bench.occupy([0, 1, 2, 3]);
    bench.report([(gpu(0), xid(79, 7)), (gpu(1), xid(79, 8)), (gpu(2), xid(48, 9))]);
    bench.occupy([]);
    let decisions = bench.report([]);
    assert_eq!(
        (decisions.remedies[0].remedy, bench.states()),
        (Remedy::Reboot, vec!["Resetting"; 4])
    );
    bench.policy.by_person = [Remedy::PowerCycle].into();
    let decisions = bench.report([(Unit::Node(0), ended(1, Outcome::Refused))]);
    let needs = |device| bench.domain.devices[&DeviceId(device)].track.state.needs();
    assert_eq!([0, 1].map(needs), [Some(Remedy::PowerCycle); 2]);
    assert_eq!(decisions.remedies[0].devices, [DeviceId(2)], "it needs its reset as before");
    assert_eq!(decisions.remedies[0].remedy, Remedy::ResetFunction);
    assert_eq!(needs(3), Some(Remedy::Test), "it made room");
    bench.report([(gpu(2), ended(2, Outcome::Remedied))]);
    bench.report([(gpu(3), ended(3, Outcome::Passed)), (gpu(2), ended(2, Outcome::Passed))]);
    assert_eq!(bench.states()[2], "Probation");
}
