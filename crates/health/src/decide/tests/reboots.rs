//! Reboots: the node makes room for them.

use super::*;

#[test]
fn a_gpu_off_the_bus_reboots_its_node_when_all_of_it_is_idle() {
    let mut bench = Bench::new(2, 2, true);
    bench.occupy([1]);
    let decisions = bench.xid(0, 79, 7);
    assert_eq!(bench.states(), ["Fenced", "Suspect", "Healthy", "Healthy"]);
    assert_eq!((decisions.drains, decisions.remedies), (vec![DeviceId(1)], vec![]));
    bench.occupy([]);
    assert_eq!(bench.report([]).remedies[0].unit, Unit::Node(0));
    bench.report([(Unit::Node(0), ended(1, Outcome::Remedied))]);
    assert_eq!(bench.states()[..2], ["Verifying", "Verifying"]);
    let reports = [(gpu(0), ended(1, Outcome::Failed)), (gpu(1), ended(1, Outcome::Passed))];
    let decisions = bench.report(reports);
    assert_eq!(decisions.remedies[0].remedy, Remedy::PowerCycle);
    bench.report([(Unit::Node(0), ended(2, Outcome::Refused))]);
    assert_eq!(bench.states(), ["Retired", "Verifying", "Healthy", "Healthy"]);
}

#[test]
fn a_node_that_waits_for_a_persons_reboot_takes_nothing_new() {
    let mut bench = Bench::new(1, 2, true);
    bench.policy.by_person = BTreeSet::from([Remedy::Reboot, Remedy::PowerCycle]);
    // No remedy takes of the budget.
    bench.policy.budget.remedies_percent = 0;
    bench.occupy([1]);
    let decisions = bench.xid(0, 79, 7);
    assert_eq!(bench.states(), ["Fenced", "Suspect"]);
    assert_eq!(decisions.drains, [DeviceId(1)]);
    assert_eq!(decisions.evictions, [], "its pods finish");
    // No test returns the other GPU before the reboot.
    bench.occupy([]);
    let decisions = bench.report([]);
    assert_eq!((decisions.remedies, decisions.tests), (vec![], vec![]));
    assert_eq!(bench.states(), ["Fenced", "Suspect"]);
    let decisions = bench.report([(Unit::Node(0), Report::RemediedByOthers)]);
    assert_eq!(decisions.tests.len(), 2);
    let ends = decisions.tests.iter().map(|test| {
        let (attempt, outcome) = (test.attempt, Outcome::Passed);
        (Unit::Device(test.device), Report::Outcome { attempt, outcome })
    });
    bench.report(ends.collect::<Vec<_>>());
    assert_eq!(bench.states(), ["Probation", "Probation"]);
    // A person who repairs by hand decides about the others, too.
    let mut bench = Bench::new(1, 2, true);
    bench.policy.mode = Mode::Fence;
    bench.xid(0, 79, 7);
    assert_eq!(bench.states(), ["Fenced", "Healthy"]);
}

#[test]
fn a_node_with_a_gpu_whose_resets_were_in_vain_serves_on() {
    let mut bench = Bench::new(1, 2, true);
    bench.policy.by_person = [Remedy::Reboot].into();
    bench.xid(0, 48, 7);
    for attempt in [1, 2] {
        bench.report([(gpu(0), ended(attempt, Outcome::Remedied))]);
        bench.report([(gpu(0), ended(attempt, Outcome::Failed))]);
    }
    let decisions = bench.report([]);
    assert_eq!(decisions.waits[&DeviceId(0)], Wait::Person);
    assert_eq!(bench.states(), ["Fenced", "Healthy"]);
}

#[test]
fn a_node_that_waits_for_its_power_serves_on_with_what_is_well() {
    let mut bench = Bench::new(1, 2, true);
    bench.policy.by_person = [Remedy::PowerCycle].into();
    assert_eq!(bench.xid(0, 79, 7).remedies[0].remedy, Remedy::Reboot);
    bench.report([(Unit::Node(0), ended(1, Outcome::Remedied))]);
    let reports = [(gpu(0), ended(1, Outcome::Failed)), (gpu(1), ended(1, Outcome::Passed))];
    let decisions = bench.report(reports);
    assert_eq!(decisions.waits[&DeviceId(0)], Wait::Person);
    assert_eq!(bench.states(), ["Fenced", "Probation"]);
}
