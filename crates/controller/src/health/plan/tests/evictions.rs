use super::*;
use crate::config::RepairConfig;
use crate::health::facts::{Loss, date};
use crate::health::lost_nodes::LostMembers;

/// Devices whose pods are evicted, as `node/gpu`.
fn evicted(plan: &Plan) -> Vec<String> {
    plan.evictions.iter().map(|found| format!("{}/{}", found.node, found.device)).collect()
}

/// The same of those that wait for the budget.
fn waiting(plan: &Plan) -> Vec<String> {
    plan.waiting.iter().map(|found| format!("{}/{}", found.node, found.device)).collect()
}

fn occupied(nodes: usize) -> Bench {
    let mut bench = Bench::new(nodes, 2);
    for number in 0..nodes {
        for gpu in [0, 1] {
            bench.device(number, gpu).is_occupied = true;
        }
    }
    bench
}

#[test]
fn evictions_touch_few_nodes_at_once_and_are_ordered() {
    let mut bench = occupied(40);
    for (number, gpu) in [(0, 0), (1, 0), (1, 1), (2, 0)] {
        bench.report(number, gpu, fenced(Remedy::ResetFunction), HOUR);
    }
    let plan = bench.round();
    assert_eq!(evicted(&plan), ["n00/gpu-0", "n01/gpu-0", "n01/gpu-1"], "of 5% of 40 nodes");
    let now = bench.now;
    assert_eq!(bench.health(0).orders[0].evicts_since, Some(now));
    let of_third = bench.health(2).orders.iter().any(|orders| orders.evicts_since.is_some());
    assert!(!of_third);
    let first = &plan.evictions[0];
    let reason = "the driver reported XID 48".to_owned();
    let expected = Eviction {
        node: "n00".to_owned(),
        device: "gpu-0".to_owned(),
        taint: ("gpu.nvidia.com/xid", "48".to_owned()),
        reason,
        since: bench.now,
        urgency: Urgency::Evicted,
    };
    assert_eq!(*first, expected);
    // Pods that have left make room for the next node.
    bench.device(0, 0).is_occupied = false;
    assert_eq!(evicted(&bench.round()), ["n01/gpu-0", "n01/gpu-1", "n02/gpu-0"]);
}

#[test]
fn pods_that_do_not_leave_hold_up_no_other_node() {
    let mut bench = occupied(20);
    for number in [0, 1] {
        bench.report(number, 0, fenced(Remedy::ResetFunction), HOUR);
    }
    assert_eq!(evicted(&bench.round()), ["n00/gpu-0"]);
    bench.now += 599;
    bench.restart();
    assert_eq!(evicted(&bench.round()), ["n00/gpu-0"], "also for another controller");
    bench.now += 1;
    assert_eq!(evicted(&bench.round()), ["n00/gpu-0", "n01/gpu-0"]);
}

#[test]
fn an_eviction_ends_with_the_fence_and_with_the_policy() {
    let mut bench = occupied(4);
    bench.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.round();
    let is_ordered = |bench: &mut Bench| {
        bench.health(0).orders.iter().any(|orders| orders.evicts_since.is_some())
    };
    assert!(is_ordered(&mut bench));
    bench.report(0, 0, State::Probation, 0);
    assert!(evicted(&bench.round()).is_empty() && !is_ordered(&mut bench));
    let ends: [fn(&mut Policy); 2] =
        [|policy| policy.evict = false, |policy| policy.mode = Mode::Observe];
    for off in ends {
        bench.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
        bench.policy(|policy| (policy.evict, policy.mode) = (true, Mode::Act));
        bench.round();
        assert!(is_ordered(&mut bench));
        bench.policy(off);
        assert!(evicted(&bench.round()).is_empty() && !is_ordered(&mut bench));
    }
}

#[test]
fn an_eviction_ends_when_its_pods_have_left() {
    let mut bench = occupied(4);
    bench.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
    assert_eq!(evicted(&bench.round()), ["n00/gpu-0"]);
    bench.device(0, 0).is_occupied = false;
    bench.round();
    assert_eq!(bench.health(0).orders[0].evicts_since, None);
    bench.now += HOUR / 6;
    bench.device(0, 0).is_occupied = true;
    assert_eq!(bench.round().evictions[0].since, bench.now, "a pod that comes has its time");
}

#[test]
fn a_permit_on_a_node_with_an_unreadable_record_evicts_no_peer() {
    let mut bench = Bench::new(20, 2);
    for gpu in [0, 1] {
        bench.device(0, gpu).resets_alone = false;
    }
    bench.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.round();
    assert_eq!(bench.permits().len(), 1);
    bench.device(0, 0).record = Err("there is none".to_owned());
    bench.device(0, 1).is_occupied = true;
    bench.report(1, 0, fenced(Remedy::ResetFunction), 0);
    bench.device(1, 0).is_occupied = true;
    assert_eq!(evicted(&bench.round()), ["n01/gpu-0"], "and takes no place of the budget");
}

#[test]
fn pods_of_a_suspect_device_run_on_and_those_of_a_lost_one_are_deleted() {
    let mut bench = occupied(4);
    let (reason, needs) = (Reason::LinkDown, Remedy::ResetFunction);
    bench.report(0, 0, State::Suspect { reason, needs }, HOUR);
    bench.report(1, 0, State::Fenced { reason: Reason::Lost, needs: Remedy::Reboot }, HOUR);
    let plan = bench.round();
    assert_eq!(evicted(&plan), ["n01/gpu-0"]);
    assert_eq!(plan.evictions[0].urgency, Urgency::Deleted);
    bench.report(1, 0, State::Fenced { reason: Reason::Xid(79), needs: Remedy::Reboot }, HOUR);
    assert_eq!(bench.round().evictions[0].urgency, Urgency::Deleted);
}

#[test]
fn pods_of_a_suspect_device_that_can_save_their_work_leave_within_the_budget() {
    let mut bench = occupied(20);
    let (reason, needs) = (Reason::LinkDown, Remedy::ResetFunction);
    for number in [0, 1, 2] {
        bench.report(number, 0, State::Suspect { reason, needs }, HOUR - number as u64);
    }
    let hook = |bench: &mut Bench, number: usize| {
        let devices = ["gpu-0".to_owned()].into();
        bench.memory.findings.hooked.insert(node(number), devices);
    };
    let plan = bench.round();
    assert_eq!((evicted(&plan).len(), plan.candidates.len()), (0, 3), "pods are looked at first");
    hook(&mut bench, 1);
    hook(&mut bench, 2);
    let plan = bench.round();
    assert_eq!(evicted(&plan), ["n01/gpu-0"], "5% of 20 nodes, longest suspect first");
    assert_eq!(plan.evictions[0].urgency, Urgency::AtCheckpoint);
    let now = bench.now;
    assert_eq!(bench.health(1).orders[0].evicts_since, Some(now));
    assert_eq!(bench.facts.policies["a"].status.evictions, 1);
    // It counts in the budget of fenced devices, also for another controller.
    bench.report(5, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.now += 599;
    bench.restart();
    assert_eq!(evicted(&bench.round()), ["n01/gpu-0"]);
    bench.device(1, 0).is_occupied = false;
    assert_eq!(evicted(&bench.round()), ["n05/gpu-0"]);
    assert!(bench.health(1).orders.iter().all(|orders| orders.evicts_since.is_none()));
    // A fence makes of it an eviction.
    bench.device(5, 0).is_occupied = false;
    hook(&mut bench, 2);
    assert_eq!(evicted(&bench.round()), ["n02/gpu-0"]);
    bench.report(2, 0, fenced(Remedy::ResetFunction), 0);
    assert_eq!(bench.round().evictions[0].urgency, Urgency::Evicted);
}

#[test]
fn no_pod_is_asked_to_leave_a_suspect_device_unless_the_policy_evicts_and_few_nodes_fail() {
    let (reason, needs) = (Reason::LinkDown, Remedy::ResetFunction);
    let setups: [fn(&mut Bench); 4] = [
        |bench| bench.policy(|policy| policy.evict = false),
        |bench| bench.policy(|policy| policy.mode = Mode::Fence),
        |bench| bench.policy(|policy| policy.mode = Mode::Observe),
        |bench| bench.facts.nodes.get_mut("n00").unwrap().not_ready_since = Some(5),
    ];
    for setup in setups {
        let mut bench = occupied(20);
        bench.report(0, 0, State::Suspect { reason, needs }, HOUR);
        setup(&mut bench);
        bench.memory.findings.hooked.insert(node(0), ["gpu-0".to_owned()].into());
        let plan = bench.round();
        assert!(plan.evictions.is_empty() && plan.candidates.is_empty());
    }
    let mut storm = occupied(20);
    storm.report(0, 0, State::Suspect { reason, needs }, HOUR);
    for number in [1, 2, 3] {
        storm.report(number, 0, State::Suspect { reason, needs }, 10);
    }
    storm.memory.findings.hooked.insert(node(0), ["gpu-0".to_owned()].into());
    assert!(evicted(&storm.round()).is_empty());
}

#[test]
fn a_drain_that_becomes_an_eviction_has_its_whole_time() {
    let mut bench = occupied(20);
    let (reason, needs) = (Reason::LinkDown, Remedy::ResetFunction);
    let suspect = State::Suspect { reason, needs };
    bench.report(0, 0, suspect, HOUR);
    bench.memory.findings.hooked.insert(node(0), ["gpu-0".to_owned()].into());
    let drained = bench.round().evictions[0].since;
    bench.now += 599;
    bench.report(0, 0, fenced(Remedy::ResetFunction), 0);
    bench.restart();
    let begin = bench.now;
    assert_eq!(bench.round().evictions[0].since, begin, "and not {drained}");
    bench.now += 5;
    bench.restart();
    let again = bench.round();
    assert_eq!((again.evictions[0].since, again.orders.len()), (begin, 0));
    // A drain that is too old to count in the budget takes its turn.
    let mut bench = occupied(20);
    bench.report(0, 0, suspect, HOUR);
    bench.memory.findings.hooked.insert(node(0), ["gpu-0".to_owned()].into());
    bench.round();
    bench.now += 600;
    bench.report(1, 0, fenced(Remedy::ResetFunction), HOUR);
    assert_eq!(evicted(&bench.round()), ["n01/gpu-0", "n00/gpu-0"]);
    bench.report(0, 0, fenced(Remedy::ResetFunction), 0);
    assert_eq!(evicted(&bench.round()), ["n01/gpu-0"]);
}

#[test]
fn members_of_lost_nodes_leave_before_pods_of_devices() {
    let mut bench = occupied(40);
    let repair = RepairConfig { after_seconds: 60, scheduler_name: "octavo".to_owned() };
    let round = |bench: &mut Bench| {
        let plan = plan(&bench.facts, &mut bench.memory, Some(&repair), bench.now);
        let lost = plan.lost.iter().filter(|(_, lost)| lost.is_evicted);
        (evicted(&plan), lost.map(|(name, _)| name.clone()).collect::<Vec<_>>())
    };
    for number in [0, 1, 2] {
        bench.report(number, 0, fenced(Remedy::ResetFunction), HOUR);
    }
    bench.facts.nodes.get_mut("n30").unwrap().loss = Some(Loss::Lost);
    let devices = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    assert_eq!(round(&mut bench), (devices(&["n00/gpu-0", "n01/gpu-0"]), vec![]));
    bench.memory.lost.members.insert(node(30), LostMembers { due: 2, leaving_since: None });
    assert_eq!(round(&mut bench), (devices(&["n00/gpu-0"]), vec![node(30)]), "5% of 40 nodes");
    // Members that cannot be deleted hold up no device.
    bench.now += 600;
    assert_eq!(round(&mut bench), (devices(&["n00/gpu-0", "n01/gpu-0"]), vec![node(30)]));
    // While the breaker is open, members stay.
    let status = &mut bench.facts.policies.get_mut("a").unwrap().status;
    status.breaker_open_until = Some(date(bench.now + 60));
    bench.restart();
    bench.memory.lost.members.insert(node(30), LostMembers { due: 2, leaving_since: None });
    assert_eq!(round(&mut bench), (devices(&["n00/gpu-0", "n01/gpu-0"]), vec![]));
}

#[test]
fn devices_out_of_service_wait_for_the_budget_in_their_turn() {
    let mut bench = occupied(40);
    for number in [0, 1, 2, 3] {
        bench.report(number, 0, fenced(Remedy::ResetFunction), HOUR);
    }
    bench.device(3, 0).is_occupied = false;
    let (reason, needs) = (Reason::LinkDown, Remedy::ResetFunction);
    bench.report(4, 0, State::Suspect { reason, needs }, HOUR);
    let plan = bench.round();
    assert_eq!(evicted(&plan), ["n00/gpu-0", "n01/gpu-0"], "of 5% of 40 nodes");
    assert_eq!(waiting(&plan), ["n02/gpu-0"], "one is idle, and the pods of another may run on");
    let found = &plan.waiting[0];
    assert_eq!((found.urgency, found.since), (Urgency::Evicted, bench.now - HOUR));
    assert_eq!(found.reason, "the driver reported XID 48");
    bench.now += 60;
    bench.restart();
    assert_eq!(bench.round().waiting, plan.waiting, "time alone changes nothing");
    bench.device(0, 0).is_occupied = false;
    let plan = bench.round();
    assert_eq!(evicted(&plan), ["n01/gpu-0", "n02/gpu-0"]);
    assert_eq!(plan.waiting, []);
}

#[test]
fn no_device_waits_for_evictions_that_its_policy_does_not_want() {
    let setups: [fn(&mut Policy); 3] = [
        |policy| policy.mode = Mode::Observe,
        |policy| policy.mode = Mode::Fence,
        |policy| policy.evict = false,
    ];
    for setup in setups {
        let mut bench = occupied(40);
        for number in [0, 1, 2] {
            bench.report(number, 0, fenced(Remedy::ResetFunction), HOUR);
        }
        bench.policy(setup);
        let plan = bench.round();
        assert_eq!((plan.evictions, plan.waiting), (vec![], vec![]));
    }
}
