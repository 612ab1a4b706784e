use super::*;
use octavo_api::checkpoint::CheckpointRequest;

use crate::health::facts::date;

#[test]
fn healthy_nodes_cost_no_write_but_that_of_the_first_status() {
    let mut bench = Bench::new(4, 2);
    let plan = bench.round();
    assert_eq!((plan.orders.len(), plan.statuses.len(), plan.evictions.len()), (0, 1, 0));
    let status = &bench.facts.policies["a"].status;
    assert_eq!((status.nodes, status.devices.healthy, status.remedies), (4, 8, 0));
    assert_eq!(bench.round(), Plan::default());
}

#[test]
fn remedies_of_all_nodes_keep_to_one_budget() {
    let mut bench = Bench::new(40, 1);
    for number in [0, 1, 2, 3] {
        bench.report(number, 0, fenced(Remedy::ResetFunction), HOUR - 60 * number as u64);
    }
    bench.round();
    let both = ["n00/gpu-0 reset-function", "n01/gpu-0 reset-function"];
    assert_eq!(bench.permits(), both, "5% of 40 nodes, oldest fence first");
    assert_eq!(bench.facts.policies["a"].status.remedies, 2);
    assert_eq!(bench.round(), Plan::default());
    // One that runs uses the budget as one that is allowed.
    bench.begin(0, 0);
    bench.round();
    assert_eq!(bench.permits(), ["n01/gpu-0 reset-function"]);
    bench.report(0, 0, State::Probation, 0);
    bench.round();
    assert_eq!(bench.permits(), ["n01/gpu-0 reset-function", "n02/gpu-0 reset-function"]);
}

#[test]
fn a_rack_has_one_remedy_at_once() {
    let mut bench = Bench::new(40, 1);
    for number in [0, 1, 2] {
        let rack = if number < 2 { "r1" } else { "r2" };
        bench.facts.nodes.get_mut(&node(number)).unwrap().rack = Some(rack.to_owned());
        bench.report(number, 0, fenced(Remedy::ResetBus), HOUR);
    }
    bench.round();
    assert_eq!(bench.permits(), ["n00/gpu-0 reset-bus", "n02/gpu-0 reset-bus"]);
}

#[test]
fn a_remedy_that_a_person_is_to_apply_takes_nothing_of_the_budget() {
    let mut bench = Bench::new(4, 2);
    bench.report(0, 0, fenced(Remedy::Reboot), 2 * HOUR);
    bench.report(1, 0, fenced(Remedy::ResetFunction), HOUR);
    for _ in 0..2 {
        bench.round();
        assert_eq!(bench.permits(), ["n01/gpu-0 reset-function"]);
        bench.now += 60;
    }
}

#[test]
fn nothing_is_allowed_unless_the_policy_acts() {
    let mut bench = Bench::new(4, 1);
    bench.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.policy(|policy| policy.mode = Mode::Observe);
    bench.round();
    assert!(bench.permits().is_empty());
    bench.policy(|policy| policy.mode = Mode::Act);
    bench.round();
    assert_eq!(bench.permits().len(), 1);
    bench.policy(|policy| policy.mode = Mode::Observe);
    bench.round();
    assert!(bench.permits().is_empty(), "what was allowed is withdrawn");
}

#[test]
fn a_permit_is_for_one_attempt_and_one_remedy() {
    let mut bench = Bench::new(4, 1);
    bench.policy(|policy| policy.by_person.clear());
    bench.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.round();
    bench.begin(0, 0);
    bench.round();
    assert!(bench.permits().is_empty(), "it was used");
    bench.report(0, 0, fenced(Remedy::ResetBus), 0);
    bench.round();
    assert_eq!(bench.permits(), ["n00/gpu-0 reset-bus"]);
    let permit = bench.health(0).orders[0].permit.clone().unwrap();
    assert_eq!(permit.after_attempt, 1);
    bench.report(0, 0, fenced(Remedy::Reboot), 0);
    bench.round();
    assert_eq!(bench.permits(), ["n00/gpu-0 reboot"], "a harsher need comes before it is used");
}

#[test]
fn a_permit_that_no_agent_uses_goes_to_another_node() {
    let mut bench = Bench::new(4, 1);
    bench.report(0, 0, fenced(Remedy::ResetFunction), 2 * HOUR);
    bench.report(1, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.round();
    assert_eq!(bench.permits(), ["n00/gpu-0 reset-function"]);
    bench.now += HOUR / 2 - 1;
    bench.round();
    assert_eq!(bench.permits(), ["n00/gpu-0 reset-function"]);
    bench.now += 1;
    bench.round();
    assert_eq!(bench.permits(), ["n01/gpu-0 reset-function"]);
}

#[test]
fn a_controller_that_starts_goes_on_from_the_objects() {
    let mut bench = Bench::new(40, 1);
    for number in [0, 1, 2] {
        bench.report(number, 0, fenced(Remedy::ResetFunction), HOUR);
    }
    bench.round();
    let permits = bench.permits();
    bench.now += 60;
    bench.restart();
    assert_eq!(bench.round(), Plan::default());
    assert_eq!(bench.permits(), permits);
}

#[test]
fn faults_of_many_nodes_withdraw_what_was_allowed_also_after_a_restart() {
    let mut bench = Bench::new(20, 1);
    bench.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.round();
    assert_eq!(bench.permits().len(), 1);
    for number in [1, 2, 3] {
        bench.report(number, 0, fenced(Remedy::ResetFunction), 10);
    }
    bench.round();
    assert!(bench.permits().is_empty());
    let (status, reason, message) = bench.condition("a", "BreakerOpen");
    assert_eq!((&*status, &*reason), ("True", "ManyFailures"));
    assert!(message.contains("more than 10% of the nodes"), "{message}");
    bench.restart();
    bench.now += 20 * 60;
    bench.round();
    assert!(bench.permits().is_empty(), "the status says so");
    bench.now += 20 * 60;
    bench.round();
    assert_eq!(bench.permits().len(), 1);
    assert_eq!(bench.condition("a", "BreakerOpen").0, "False");
}

#[test]
fn a_breaker_stays_open_while_its_policy_is_not_valid_and_for_a_controller_that_leads_again() {
    let mut bench = Bench::new(20, 1);
    for number in [1, 2, 3] {
        bench.report(number, 0, fenced(Remedy::ResetFunction), 10);
    }
    bench.round();
    let until = bench.facts.policies["a"].status.breaker_open_until.clone();
    assert!(until.is_some());
    let valid = bench.facts.policies["a"].policy.clone();
    bench.facts.policies.get_mut("a").unwrap().policy = Err("budget: no".to_owned());
    bench.now += 10 * 60;
    bench.round();
    assert_eq!(bench.facts.policies["a"].status.breaker_open_until, until);
    bench.facts.policies.get_mut("a").unwrap().policy = valid;
    bench.restart();
    bench.round();
    assert!(bench.permits().is_empty(), "the status says so");
    bench.now += HOUR;
    bench.round();
    assert_eq!(bench.permits().len(), 1);
    // Another controller led, and opened it.
    let later = Some(crate::health::facts::date(bench.now + HOUR / 3));
    bench.facts.policies.get_mut("a").unwrap().status.breaker_open_until.clone_from(&later);
    bench.round();
    assert!(bench.permits().is_empty());
    assert_eq!(bench.facts.policies["a"].status.breaker_open_until, later);
}

#[test]
fn a_fault_counts_for_the_breaker_also_while_its_device_is_reset() {
    let mut bench = Bench::new(20, 1);
    bench.report(0, 0, fenced(Remedy::ResetFunction), 10);
    bench.round();
    bench.begin(0, 0);
    bench.round();
    for number in [1, 2] {
        bench.report(number, 0, fenced(Remedy::ResetFunction), 0);
    }
    bench.round();
    assert_eq!(bench.condition("a", "BreakerOpen").0, "True");
}

#[test]
fn failed_remedies_of_many_nodes_are_no_storm() {
    let mut bench = Bench::new(20, 1);
    for number in [0, 1, 2] {
        let reason = Reason::RemedyFailed(Remedy::ResetFunction);
        bench.report(number, 0, State::Fenced { reason, needs: Remedy::ResetBus }, 0);
    }
    bench.round();
    assert_eq!(bench.condition("a", "BreakerOpen").0, "False");
    assert_eq!(bench.permits().len(), 1);
}

#[test]
fn an_old_gpu_is_reset_with_its_island_by_one_permit() {
    let mut bench = Bench::new(40, 2);
    for gpu in [0, 1] {
        bench.device(0, gpu).resets_alone = false;
    }
    bench.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.device(0, 1).is_occupied = true;
    bench.round();
    assert!(bench.permits().is_empty(), "its peer has clients");
    bench.device(0, 1).is_occupied = false;
    for number in [1, 2] {
        bench.report(number, 0, fenced(Remedy::ResetFunction), HOUR / 2);
    }
    bench.round();
    let both = ["n00/gpu-0 reset-function", "n01/gpu-0 reset-function"];
    assert_eq!(bench.permits(), both, "two GPUs, and one remedy of the budget");
    assert_eq!(bench.round(), Plan::default());
}

#[test]
fn a_row_remap_is_reset_within_the_budget() {
    let mut bench = Bench::new(4, 1);
    bench.report(0, 0, State::Watch { reason: Reason::RemapPending }, HOUR);
    bench.round();
    assert_eq!(bench.permits(), ["n00/gpu-0 reset-function"]);
    assert_eq!(bench.round(), Plan::default());
}

#[test]
fn a_permit_is_withdrawn_when_pods_that_may_run_come_and_evicts_none() {
    let no_eviction = |bench: &mut Bench, plan: &Plan| {
        let is_ordered = |orders: &OrderFacts| orders.evicts_since.is_some();
        plan.evictions.is_empty() && !bench.health(0).orders.iter().any(is_ordered)
    };
    let mut remap = Bench::new(4, 1);
    remap.report(0, 0, State::Watch { reason: Reason::RemapPending }, HOUR);
    let mut island = Bench::new(4, 2);
    for gpu in [0, 1] {
        island.device(0, gpu).resets_alone = false;
    }
    island.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
    for (mut bench, occupant) in [(remap, 0), (island, 1)] {
        bench.round();
        assert_eq!(bench.permits(), ["n00/gpu-0 reset-function"]);
        bench.device(0, occupant).is_occupied = true;
        for _ in 0..2 {
            let plan = bench.round();
            assert!(no_eviction(&mut bench, &plan), "{:?}", plan.evictions);
            assert!(bench.permits().is_empty(), "{occupant}");
        }
        bench.device(0, occupant).is_occupied = false;
        bench.round();
        assert_eq!(bench.permits(), ["n00/gpu-0 reset-function"]);
    }
}

#[test]
fn a_node_that_is_not_ready_is_left_alone_but_for_a_reboot() {
    let mut bench = Bench::new(40, 1);
    bench.policy(|policy| policy.by_person.clear());
    bench.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.report(1, 0, fenced(Remedy::Reboot), HOUR);
    for number in [0, 1] {
        let since = bench.now - 60;
        bench.facts.nodes.get_mut(&node(number)).unwrap().not_ready_since = Some(since);
    }
    bench.round();
    assert_eq!(bench.permits(), ["n01/gpu-0 reboot"]);
}

#[test]
fn what_an_operator_fenced_gets_no_permit() {
    let mut bench = Bench::new(4, 1);
    bench.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.track(0, 0).is_held = true;
    bench.round();
    assert!(bench.permits().is_empty());
}

#[test]
fn of_two_policies_the_first_by_name_applies() {
    let mut bench = Bench::new(4, 1);
    bench.policy(|policy| policy.mode = Mode::Observe);
    bench.facts.policies.insert("b".to_owned(), policy_facts(Ok(acting())));
    bench.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.round();
    assert!(bench.permits().is_empty());
    let (status, reason, message) = bench.condition("b", "Accepted");
    assert_eq!((&*status, &*reason), ("True", "OtherPolicyFirst"));
    assert_eq!(message, "the policy a goes before it on 4 of its nodes");
    assert_eq!(bench.condition("a", "Accepted").1, "Accepted");
    // One that is not valid still goes before the others. Its nodes have no policy.
    bench.facts.policies.insert("a".to_owned(), policy_facts(Err("budget: no".to_owned())));
    bench.round();
    assert!(bench.permits().is_empty());
    assert_eq!(bench.facts.policies["b"].status.nodes, 0);
    assert_eq!(bench.condition("b", "Accepted").1, "OtherPolicyFirst");
    let refused = ("False".to_owned(), "InvalidPolicy".to_owned(), "budget: no".to_owned());
    assert_eq!(bench.condition("a", "Accepted"), refused);
    assert_eq!(bench.facts.policies["a"].status.nodes, 0);
    bench.facts.policies.get_mut("a").unwrap().selector.clear();
    bench.round();
    assert_eq!(bench.permits().len(), 1, "one without a selector applies to no node");
}

#[test]
fn nodes_without_a_policy_lose_their_permits() {
    let mut bench = Bench::new(4, 1);
    bench.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.device(1, 0).is_occupied = true;
    bench.report(1, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.round();
    bench.facts.policies.clear();
    bench.round();
    assert!(bench.permits().is_empty());
    assert!(bench.health(1).orders.iter().all(|orders| orders.evicts_since.is_none()));
}

#[test]
fn a_node_that_does_not_come_back_climbs_the_ladder_once() {
    let mut bench = Bench::new(40, 1);
    bench.policy(|policy| {
        policy.by_person.clear();
        policy.by_template = [Remedy::Reboot, Remedy::PowerCycle].into();
    });
    bench.report(0, 0, fenced(Remedy::Reboot), HOUR);
    let since = bench.now - 60;
    bench.facts.nodes.get_mut(&node(0)).unwrap().not_ready_since = Some(since);
    let permit = |bench: &mut Bench| {
        bench.restart();
        bench.round();
        assert_eq!(bench.round(), Plan::default());
        bench.health(0).orders[0].permit.clone().unwrap()
    };
    let first = permit(&mut bench);
    assert_eq!((first.remedy, bench.permits().len()), (Remedy::Reboot, 1));
    bench.now += HOUR / 2 - 1;
    assert_eq!(permit(&mut bench), first);
    bench.now += 1;
    let second = permit(&mut bench);
    assert_eq!((second.remedy, second.after_attempt), (Remedy::PowerCycle, 0));
    // The node is ready for a moment: no remedy begins again.
    for seen in [None, Some(since)] {
        bench.facts.nodes.get_mut(&node(0)).unwrap().not_ready_since = seen;
        assert_eq!(permit(&mut bench), second);
    }
    assert_eq!(bench.facts.policies["a"].status.remedies, 1);
    for _ in 0..3 {
        bench.now += HOUR / 2;
        assert_eq!(permit(&mut bench), second, "nothing is left, and nothing begins again");
        assert_eq!(bench.facts.policies["a"].status.remedies, 0, "it takes nothing of the budget");
    }
    bench.facts.nodes.get_mut(&node(0)).unwrap().not_ready_since = None;
    assert_eq!(permit(&mut bench).remedy, Remedy::Reboot, "its agent says what it needs");
}

#[test]
fn work_on_nodes_that_cannot_be_read_stops_no_remedy_and_no_taint_changes() {
    let mut bench = Bench::new(4, 1);
    bench.report(0, 0, fenced(Remedy::ResetFunction), HOUR);
    bench.facts.nodes.get_mut(&node(1)).unwrap().is_in_maintenance = true;
    bench.facts.apply(Change::Unserved(Kind::Maintenance));
    assert_eq!(bench.round().maintenance, MaintenancePlan::default());
    assert_eq!(bench.permits().len(), 1);
    bench.facts.apply(Change::End(Kind::Maintenance));
    assert_eq!(bench.round().maintenance.taints, [(node(1), false)]);
}

#[test]
fn no_reboot_begins_while_a_pod_saves_its_work() {
    let mut bench = Bench::new(4, 2);
    bench.policy(|policy| policy.by_person.clear());
    for gpu in [0, 1] {
        bench.report(0, gpu, fenced(Remedy::Reboot), HOUR);
        bench.device(0, gpu).is_occupied = true;
    }
    let request = CheckpointRequest {
        uid: "u".to_owned(),
        since: date(bench.now),
        deadline_seconds: 3_600,
        ..CheckpointRequest::default()
    };
    let begin = bench.now;
    bench.health(0).requests = vec![request];
    for later in [0, 1_200, 3_600] {
        bench.now = begin + later;
        bench.round();
        assert!(bench.permits().is_empty(), "{later}");
    }
    bench.now = begin + 3_700;
    bench.round();
    let both = ["n00/gpu-0 reboot", "n00/gpu-1 reboot"];
    assert_eq!(bench.permits(), both, "clients that do not leave are stuck");
}
