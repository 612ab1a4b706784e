//! Remedies that the controller permits.

use super::*;

#[test]
fn a_remedy_waits_for_the_permit_of_its_device() {
    let mut bench = Bench::new(1, 2, true);
    bench.permitted = Some(BTreeSet::from([DeviceId(1)]));
    let rows = Observation::RemappedRows { is_pending: true, has_failed: false };
    let decisions = bench.report([(gpu(0), xid(48, 7)), (gpu(1), Report::Observation(rows))]);
    assert_eq!(decisions.waits, BTreeMap::from([(DeviceId(0), Wait::Permit)]));
    assert_eq!(decisions.remedies[0].devices, [DeviceId(1)]);
    bench.permitted = Some(BTreeSet::from([DeviceId(0)]));
    bench.report([(gpu(1), ended(1, Outcome::Remedied))]);
    let decisions = bench.report([(gpu(1), ended(1, Outcome::Passed))]);
    assert_eq!(decisions.remedies[0].devices, [DeviceId(0)]);
}

#[test]
fn peers_drain_while_a_remedy_waits_for_its_permit() {
    let mut bench = Bench::new(1, 2, false);
    bench.permitted = Some(BTreeSet::new());
    bench.occupy([1]);
    let decisions = bench.xid(0, 48, 7);
    assert_eq!(decisions.waits[&DeviceId(0)], Wait::Permit);
    assert_eq!(bench.states(), ["Fenced", "Suspect"], "no pod comes that would put the permit off");
    bench.occupy([]);
    bench.permitted = Some(BTreeSet::from([DeviceId(0)]));
    assert_eq!(bench.report([]).remedies[0].devices, [DeviceId(0), DeviceId(1)]);

    let mut alone = Bench::new(1, 2, true);
    alone.permitted = Some(BTreeSet::new());
    alone.occupy([0, 1]);
    alone.xid(0, 48, 7);
    assert_eq!(alone.states(), ["Fenced", "Healthy"], "its reset reaches no peer");
}

#[test]
fn peers_do_not_make_room_while_no_permit_comes() {
    for number in [48, 79] {
        let mut bench = Bench::new(1, 2, false);
        bench.permitted = Some(BTreeSet::new());
        bench.domain.stop_permits(true);
        bench.occupy([1]);
        bench.xid(0, number, 7);
        assert_eq!(bench.states(), ["Fenced", "Healthy"], "XID {number}");
        bench.domain.stop_permits(false);
        bench.report([]);
        assert_eq!(bench.states(), ["Fenced", "Suspect"], "XID {number}");
        // Once it makes room, it stays out of the way.
        bench.domain.stop_permits(true);
        bench.occupy([]);
        bench.report([]);
        assert_eq!(bench.states(), ["Fenced", "Suspect"], "XID {number}");
    }
}

#[test]
fn a_node_whose_gpu_an_operator_holds_goes_on() {
    let mut bench = Bench::new(1, 2, true);
    bench.occupy([0, 1]);
    bench.report([(gpu(0), Report::Word(Word::Fence))]);
    let decisions = bench.xid(0, 79, 7);
    assert_eq!(decisions.waits[&DeviceId(0)], Wait::Operator);
    assert_eq!(bench.states(), ["Fenced", "Healthy"]);
}
