use std::collections::BTreeSet;

use super::super::WRITES_OF_A_ROUND;
use super::*;

#[test]
fn a_record_that_cannot_be_read_stops_its_node_and_resets_no_budget() {
    let mut bench = Bench::new(20, 2);
    bench.report(0, 0, fenced(Remedy::ResetFunction), 2 * HOUR);
    bench.report(1, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.round();
    assert_eq!(bench.permits(), ["n00/gpu-0 reset-function"]);
    bench.device(0, 0).record = Err("unknown field `colour`".to_owned());
    let plan = bench.round();
    assert_eq!(plan.orders, [], "it is left as it is");
    assert_eq!(bench.permits(), ["n00/gpu-0 reset-function"], "the remedy may run");
    let (status, reason, message) = bench.condition("a", "RecordsReadable");
    assert_eq!((&*status, &*reason), ("False", "MalformedRecord"));
    assert!(message.ends_with("gpu-0 of node n00: unknown field `colour`"), "{message}");
    assert_eq!(bench.facts.policies["a"].status.devices.fenced, 2);
    bench.now += 2 * HOUR;
    bench.round();
    assert_eq!(bench.permits(), ["n00/gpu-0 reset-function"], "nothing says that it ended");
}

#[test]
fn no_device_of_a_node_with_such_a_record_gets_a_permit_or_an_eviction() {
    let mut bench = Bench::new(20, 2);
    bench.device(0, 0).record = Err("there is none".to_owned());
    bench.device(0, 0).is_occupied = true;
    bench.report(0, 1, fenced(Remedy::ResetFunction), 2 * HOUR);
    bench.report(1, 0, fenced(Remedy::ResetFunction), HOUR);
    let plan = bench.round();
    assert_eq!(bench.permits(), ["n01/gpu-0 reset-function"]);
    assert_eq!(plan.evictions, []);
    bench.device(0, 1).is_occupied = true;
    assert_eq!(bench.round().evictions, [], "it could not be written down");
    bench.device(0, 1).is_occupied = false;
    bench.device(0, 0).record = Ok(Record::default());
    bench.report(1, 0, State::Probation, 0);
    bench.round();
    assert_eq!(bench.permits(), ["n00/gpu-1 reset-function"]);
    assert_eq!(bench.condition("a", "RecordsReadable").0, "True");
}

fn copy(bench: &mut Bench) -> Option<State> {
    let copy = bench.health(0).orders.first()?.copy.as_ref()?;
    Some(copy.track.state)
}

#[test]
fn records_are_copied_when_their_state_changes() {
    let mut bench = Bench::new(1, 1);
    bench.policy(|policy| policy.mode = Mode::Observe);
    bench.report(0, 0, fenced(Remedy::ResetFunction), 5);
    bench.track(0, 0).attempt = Attempt(7);
    bench.round();
    assert_eq!(copy(&mut bench), Some(fenced(Remedy::ResetFunction)));
    assert_eq!(bench.round(), Plan::default());
    // Time at work and the time of the last warning alone are worth no write.
    bench.track(0, 0).since += 1;
    let policy = acting();
    let record = bench.device(0, 0).record.as_mut().unwrap();
    record.history.expose(&policy.risk, 1_000 * HOUR, 50);
    assert_eq!(bench.round().orders, []);
    // The node lost its disk.
    bench.device(0, 0).record = Ok(Record::default());
    assert_eq!(bench.round().orders, []);
    assert_eq!(copy(&mut bench), Some(fenced(Remedy::ResetFunction)));
}

#[test]
fn permits_are_written_before_copies_alone() {
    let mut bench = Bench::new(3, 1);
    bench.report(0, 0, State::Watch { reason: Reason::Hot }, 5);
    bench.report(1, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.report(2, 0, State::Watch { reason: Reason::Hot }, 5);
    let plan = bench.round();
    let orders = plan.orders.iter().map(|orders| (orders.node.as_str(), orders.are_copies));
    assert_eq!(orders.collect::<Vec<_>>(), [("n01", false), ("n00", true), ("n02", true)]);
}

#[test]
fn copies_that_fail_hold_up_no_other() {
    let mut bench = Bench::new(600, 1);
    for number in 0..600 {
        bench.report(number, 0, State::Watch { reason: Reason::Hot }, 5);
    }
    bench.report(7, 0, fenced(Remedy::ResetFunction), HOUR);
    let mut had_a_turn = BTreeSet::new();
    for _ in 0..3 {
        // Nothing is written.
        let orders = plan(&bench.facts, &mut bench.memory, None, bench.now).orders;
        assert_eq!((orders.len(), orders[0].are_copies), (WRITES_OF_A_ROUND + 2, false));
        let turn = &orders[..WRITES_OF_A_ROUND];
        bench.memory.last_orders.clone_from(&turn[WRITES_OF_A_ROUND - 1].node);
        had_a_turn.extend(turn.iter().map(|orders| orders.node.clone()));
    }
    assert_eq!(had_a_turn.len(), 600);
}

#[test]
fn a_fence_of_a_device_that_is_not_there_stays_known() {
    let mut bench = Bench::new(1, 2);
    bench.report(0, 0, State::Retired { reason: Reason::RemapFailed }, 5);
    bench.report(0, 1, State::Watch { reason: Reason::Hot }, 5);
    bench.round();
    assert_eq!(bench.health(0).orders.len(), 2);
    bench.health(0).devices.clear();
    bench.round();
    let orders = &bench.health(0).orders;
    let left: Vec<_> = orders.iter().map(|orders| &*orders.uuid).collect();
    assert_eq!(left, ["GPU-0-0"]);
}
