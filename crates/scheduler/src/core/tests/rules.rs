//! Gangs whose members have rules that the engine's shapes do not know.

use serde_json::{Value, json};

use super::claims::{bed as bed_with_gpus, claim, slice};
use super::kit::{Bed, evicted, member, node, plugin_node, pod, pod_group, with};
use crate::bind::OpKind;
use crate::status::StatusUpdate;

fn gpu_member(group: &str, name: &str, gpus: u32) -> Value {
    let limits = json!({"nvidia.com/gpu": gpus.to_string()});
    with(member(group, name, "1"), "/spec/containers/0/resources/limits", limits)
}

fn on_port(pod: Value, port: u16) -> Value {
    let ports = json!([{"containerPort": port, "hostPort": port}]);
    with(with(pod, "/spec/hostNetwork", json!(true)), "/spec/containers/0/ports", ports)
}

fn sub(pod: Value, name: &str) -> Value {
    with(pod, "/metadata/labels/octavo.dev~1pod-subgroup", json!(name))
}

fn group_of(subs: &Value) -> Value {
    let group = pod_group("g", 1, json!({}));
    let group = with(group, "/spec/subGroups", subs.clone());
    let mut group = group;
    group["spec"].as_object_mut().expect("a spec").remove("minMember");
    group
}

/// Nodes of those who were bound, each once.
fn nodes(bound: &[(String, String)]) -> Vec<&str> {
    let mut nodes: Vec<&str> = bound.iter().map(|(_, node)| node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

#[test]
fn members_that_take_one_port_of_the_host_go_to_a_node_each() {
    let mut bed = Bed::new();
    for number in 0..18 {
        bed.node(&plugin_node(&format!("n{number:02}")));
    }
    bed.object(&pod_group("g", 16, json!({})));
    for number in 0..16 {
        bed.pod(&on_port(gpu_member("g", &format!("m{number:02}"), 1), 29_500));
    }
    let bound = bed.settle();
    assert_eq!((bound.len(), nodes(&bound).len()), (16, 16), "{bound:?}");
}

#[test]
fn who_takes_a_port_goes_beside_members_that_take_none() {
    let mut bed = Bed::new();
    bed.node(&plugin_node("a"));
    bed.object(&pod_group("g", 1, json!({})));
    bed.pod(&gpu_member("g", "early", 1));
    assert_eq!(bed.settle().len(), 1);
    // It asks for the same amounts, and for a port besides.
    bed.pod(&on_port(gpu_member("g", "late", 1), 29_500));
    assert_eq!(bed.settle(), [("late".to_owned(), "a".to_owned())]);
}

#[test]
fn a_gang_with_more_ports_than_nodes_is_told_so() {
    let mut bed = Bed::new();
    for name in ["a", "b"] {
        bed.node(&plugin_node(name));
    }
    bed.object(&pod_group("g", 3, json!({})));
    for name in ["m0", "m1", "m2"] {
        bed.pod(&on_port(gpu_member("g", name, 1), 29_500));
    }
    assert_eq!(bed.settle(), []);
    let (reason, message) = bed.reason("m0").expect("a reason");
    assert_eq!(reason, "Unschedulable");
    assert!(message.contains("no more of them may be"), "{message}");
}

#[test]
fn two_subgroups_share_a_port() {
    let mut bed = Bed::new();
    for number in 0..16 {
        bed.node(&plugin_node(&format!("n{number:02}")));
    }
    let subs = json!([{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 15}]);
    bed.object(&group_of(&subs));
    bed.pod(&on_port(sub(gpu_member("g", "leader", 2), "leader"), 29_500));
    for number in 0..15 {
        let worker = sub(gpu_member("g", &format!("w{number:02}"), 1), "worker");
        bed.pod(&on_port(worker, 29_500));
    }
    let bound = bed.settle();
    assert_eq!((bound.len(), nodes(&bound).len()), (16, 16), "{bound:?}");
}

#[test]
fn ports_of_one_address_and_of_every_address_exclude_one_another() {
    let at = |pod: Value, ip: &str| {
        let ports = json!([{"containerPort": 80, "hostPort": 80, "hostIP": ip}]);
        with(pod, "/spec/containers/0/ports", ports)
    };
    let mut bed = Bed::new();
    for name in ["a", "b"] {
        bed.node(&node(name, 8));
    }
    bed.object(&pod_group("g", 3, json!({})));
    bed.pod(&at(member("g", "m0", "1"), "10.0.0.1"));
    bed.pod(&at(member("g", "m1", "1"), "10.0.0.2"));
    bed.pod(&at(member("g", "m2", "1"), "0.0.0.0"));
    let bound = bed.settle();
    assert_eq!(bound.len(), 3);
    // The two addresses are together, or the third could not be anywhere.
    assert_eq!(bound[0].1, bound[1].1);
    assert_ne!(bound[1].1, bound[2].1);
}

#[test]
fn a_port_that_is_taken_keeps_those_away_who_take_it() {
    let mut bed = Bed::new();
    for name in ["a", "b", "c"] {
        bed.node(&node(name, 4));
    }
    for name in ["a", "b"] {
        let daemon = on_port(super::kit::pod(&format!("daemon-{name}"), "1"), 29_500);
        let daemon = with(daemon, "/spec/nodeName", json!(name));
        bed.pod(&with(daemon, "/status/phase", json!("Running")));
    }
    let subs = json!([{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 2}]);
    bed.object(&group_of(&subs));
    bed.pod(&on_port(sub(member("g", "leader", "3"), "leader"), 29_500));
    for name in ["w0", "w1"] {
        bed.pod(&sub(member("g", name, "3"), "worker"));
    }
    let bound = bed.settle();
    let own = |pod: &str| bound.iter().find(|(name, _)| name == pod).map(|(_, node)| node.as_str());
    assert_eq!(own("leader"), Some("c"), "{bound:?}");
    assert_eq!(nodes(&bound), ["a", "b", "c"]);
}

#[test]
fn members_of_one_group_are_kept_away_each_by_its_own_ports() {
    let mut bed = Bed::new();
    for name in ["a", "b", "c"] {
        bed.node(&node(name, 4));
    }
    for name in ["a", "b"] {
        let daemon = on_port(super::kit::pod(&format!("daemon-{name}"), "1"), 29_500);
        let daemon = with(daemon, "/spec/nodeName", json!(name));
        bed.pod(&with(daemon, "/status/phase", json!("Running")));
    }
    bed.object(&pod_group("g", 3, json!({})));
    bed.pod(&member("g", "m0", "3"));
    bed.pod(&on_port(member("g", "m1", "3"), 29_500));
    bed.pod(&member("g", "m2", "3"));
    let bound = bed.settle();
    assert_eq!(bound.iter().find(|(pod, _)| pod == "m1").map(|(_, node)| &**node), Some("c"));
    assert_eq!(nodes(&bound), ["a", "b", "c"]);
}

/// A claim of a node's devices, that pods name.
fn shared_claim(name: &str) -> Value {
    let mut claim = claim(name, "nobody");
    claim["metadata"].as_object_mut().expect("metadata").remove("ownerReferences");
    claim
}

fn using(pod: Value, claim: &str) -> Value {
    let pod =
        with(pod, "/spec/resourceClaims", json!([{"name": "gpu", "resourceClaimName": claim}]));
    with(pod, "/spec/containers/0/resources/claims", json!([{"name": "gpu"}]))
}

fn on_node(name: &str) -> Value {
    json!({"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": [name]}]}]})
}

#[test]
fn a_leader_with_a_claim_of_a_node_and_workers_that_have_no_room_there() {
    let mut bed = Bed::new();
    bed.class(&super::claims::class());
    for (name, cpu) in [("a", 2), ("b", 8), ("c", 8)] {
        bed.node(&node(name, cpu));
        bed.slice(&slice(name, 1));
    }
    let mut held = shared_claim("of-a");
    held["status"]["allocation"] = json!({
        "devices": {"results": [{
            "request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-0"}]},
        "nodeSelector": on_node("a"),
    });
    bed.claim(&held);
    let subs = json!([{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 2}]);
    bed.object(&group_of(&subs));
    bed.pod(&using(sub(member("g", "leader", "1"), "leader"), "of-a"));
    for name in ["w0", "w1"] {
        bed.pod(&sub(member("g", name, "8"), "worker"));
    }
    let bound = bed.settle();
    let expected = [("leader", "a"), ("w0", "b"), ("w1", "c")];
    let expected = expected.map(|(pod, node)| (pod.to_owned(), node.to_owned()));
    assert_eq!(bound, expected);
}

/// Orders of a gang whose members share one claim: who goes where.
fn sharers(bed: &mut Bed) -> Vec<(String, String)> {
    let mut bound = Vec::new();
    for _ in 0..8 {
        for order in bed.orders() {
            if let OpKind::Bind(bind) = &order.kind {
                bound.push((bind.pod.name.name.to_string(), bind.node.to_string()));
            }
            bed.carry_out(&order);
        }
    }
    bound.sort();
    bound
}

#[test]
fn members_that_share_a_claim_go_where_it_is() {
    // The nodes have one GPU each, which all members share, and room for two or for three.
    let mut bed = bed_with_gpus(&[], 0);
    for (name, cpu) in [("a", 2), ("b", 2), ("c", 3), ("d", 2)] {
        bed.node(&node(name, cpu));
        bed.slice(&slice(name, 1));
    }
    bed.claim(&shared_claim("one"));
    bed.object(&pod_group("g", 3, json!({})));
    for name in ["m0", "m1", "m2"] {
        bed.pod(&using(member("g", name, "1"), "one"));
    }
    let bound = sharers(&mut bed);
    assert_eq!((bound.len(), nodes(&bound)), (3, vec!["c"]), "{bound:?}");
}

#[test]
fn members_that_share_a_claim_are_told_where_no_node_has_them_all() {
    let mut bed = bed_with_gpus(&[], 0);
    for name in ["a", "b"] {
        bed.node(&node(name, 2));
        bed.slice(&slice(name, 1));
    }
    bed.claim(&shared_claim("one"));
    bed.object(&pod_group("g", 3, json!({})));
    for name in ["m0", "m1", "m2"] {
        bed.pod(&using(member("g", name, "1"), "one"));
    }
    assert_eq!(sharers(&mut bed), []);
    assert_eq!(bed.reason("m0").map(|(reason, _)| reason), Some("Unschedulable"));
    // What was tried was given back.
    bed.claim(&claim("p-gpu", "p"));
    bed.pod(&super::claims::claiming("p"));
    assert_eq!(bed.settle().len(), 1);
}

/// A node with one device of a plugin that the engine does not know.
fn with_card(node: Value) -> Value {
    let node = with(node, "/status/allocatable/example.com~1card", json!("1"));
    with(node, "/status/capacity/example.com~1card", json!("1"))
}

fn with_one_card(pod: Value) -> Value {
    with(pod, "/spec/containers/0/resources/limits", json!({"example.com/card": "1"}))
}

#[test]
fn members_that_take_what_the_engine_does_not_count_are_spread() {
    let mut bed = Bed::new();
    for number in 0..12 {
        bed.node(&with_card(node(&format!("n{number:02}"), 64)));
    }
    bed.object(&pod_group("g", 12, json!({})));
    for number in 0..12 {
        bed.pod(&with_one_card(member("g", &format!("m{number:02}"), "1")));
    }
    let bound = bed.settle();
    assert_eq!((bound.len(), nodes(&bound).len()), (12, 12), "{bound:?}");
}

#[test]
fn a_gang_leaves_a_rack_that_has_too_few_of_what_the_engine_does_not_count() {
    let racked = |name: &str, rack: &str| {
        with(with_card(node(name, 8)), "/metadata/labels/topology.octavo.dev~1rack", json!(rack))
    };
    let mut bed = Bed::new();
    for (name, rack) in [("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2"), ("e", "r2")] {
        bed.node(&racked(name, rack));
    }
    bed.object(&pod_group("g", 3, json!({"required": "rack"})));
    for name in ["m0", "m1", "m2"] {
        bed.pod(&with_one_card(member("g", name, "2")));
    }
    let bound = bed.settle();
    assert_eq!(nodes(&bound), ["c", "d", "e"], "{bound:?}");
}

fn segmented(min: u32, size: u32) -> Value {
    let segment = json!({"size": size, "level": "rack"});
    group_of(&json!([{"name": "worker", "minMember": min, "segment": segment}]))
}

fn racks() -> Bed {
    let mut bed = Bed::new();
    for (name, rack) in [("a", "r1"), ("b", "r2"), ("c", "r3")] {
        let rack_label = "/metadata/labels/topology.octavo.dev~1rack";
        bed.node(&with(node(name, 3), rack_label, json!(rack)));
    }
    bed
}

fn worker(number: u32) -> Value {
    sub(member("g", &format!("w{number}"), "1"), "worker")
}

#[test]
fn members_of_a_segment_that_is_not_complete_wait_and_are_told() {
    let mut bed = racks();
    bed.object(&segmented(4, 2));
    for number in 0..5 {
        bed.pod(&worker(number));
    }
    let bound = bed.settle();
    assert_eq!(bound.len(), 4);
    let on = |number: usize| &bound[number].1;
    assert!(on(0) == on(1) && on(2) == on(3), "{bound:?}");
    let (reason, message) = bed.reason("w4").expect("a reason");
    assert_eq!(reason, "IncompleteSegment");
    assert!(message.contains("2 members") && message.contains('5'), "{message}");
    assert_eq!(all_told(&bed, "w4"), ["IncompleteSegment"], "nothing else at any time");
    bed.pod(&worker(5));
    let bound = bed.settle();
    assert_eq!((bound.len(), nodes(&bound).len()), (2, 1), "{bound:?}");
}

/// All reasons that were told for a pod, and for the gang beside those that it is placed.
fn all_told(bed: &Bed, who: &str) -> Vec<&'static str> {
    let told = bed.reports.iter().filter_map(|report| match report {
        StatusUpdate::PodUnschedulable { pod, status_text, .. } if &*pod.name.name == who => {
            Some(status_text.reason)
        }
        StatusUpdate::Group(group) if group.status_text.reason != "Scheduled" => {
            Some(group.status_text.reason)
        }
        _ => None,
    });
    let mut told: Vec<_> = told.filter(|reason| *reason != "Gathering").collect();
    told.dedup();
    told
}

#[test]
fn who_is_left_of_a_gang_for_which_others_left_is_not_told_that_there_is_no_room() {
    let mut bed = racks();
    for on in ["a", "b", "c"] {
        bed.pod(&with(pod(on, "3"), "/spec/nodeSelector", json!({"kubernetes.io/hostname": on})));
    }
    assert_eq!(bed.settle().len(), 3);
    bed.object(&segmented(2, 2));
    for number in 0..3 {
        bed.pod(&with(worker(number), "/spec/priority", json!(100)));
    }
    let orders = bed.orders();
    let [victim] = &evicted(&orders)[..] else { panic!("one leaves: {orders:?}") };
    for order in &orders {
        bed.carry_out(order);
    }
    bed.drop_pod(victim);
    assert_eq!(bed.settle().len(), 2);
    assert_eq!(bed.reason("w2").map(|(reason, _)| reason), Some("IncompleteSegment"));
    let is_no_room = |report: &StatusUpdate| {
        matches!(report,
        StatusUpdate::PodUnschedulable { status_text, .. } if status_text.message.contains("no room for more"))
    };
    assert!(!bed.reports.iter().any(is_no_room), "{:?}", bed.reports);
}

#[test]
fn members_of_one_segment_ask_for_the_same() {
    let mut bed = racks();
    bed.object(&segmented(4, 2));
    for number in 0..3 {
        bed.pod(&worker(number));
    }
    bed.pod(&sub(member("g", "w3", "2"), "worker"));
    assert_eq!(bed.settle(), []);
    let (reason, message) = bed.reason("w0").expect("a reason");
    assert_eq!(reason, "UnevenSegment");
    assert!(message.contains("worker") && message.contains('2'), "{message}");
}

#[test]
fn members_of_a_subgroup_lie_in_one_rack_also_where_they_ask_for_different_things() {
    let rack_label = "/metadata/labels/topology.octavo.dev~1rack";
    let on = |pod: Value, name: &str| {
        with(pod, "/spec/nodeSelector", json!({"kubernetes.io/hostname": name}))
    };
    for (rack, bound) in [("r1", 2), ("r2", 0)] {
        let mut bed = racks();
        bed.node(&with(node("d", 3), rack_label, json!(rack)));
        let topology = json!({"required": "rack"});
        bed.object(&group_of(&json!([{"name": "worker", "minMember": 2, "topology": topology}])));
        bed.pod(&on(worker(0), "a"));
        bed.pod(&on(worker(1), "d"));
        assert_eq!(bed.settle().len(), bound, "{rack}");
    }
}

#[test]
fn a_refusal_is_no_proof_where_who_is_needed_was_chosen_beforehand() {
    let on = |pod: Value, name: &str| {
        with(pod, "/spec/nodeSelector", json!({"kubernetes.io/hostname": name}))
    };
    let mut bed = racks();
    let topology = json!({"required": "rack"});
    bed.object(&group_of(&json!([{"name": "worker", "minMember": 2, "topology": topology}])));
    for number in 0..2 {
        bed.pod(&on(worker(number), "nowhere"));
    }
    assert_eq!(bed.settle(), []);
    let (reason, message) = bed.reason("w0").expect("a reason");
    assert_eq!(reason, "Unschedulable");
    assert!(!message.contains("no proof"), "{message}");
    for number in 2..4 {
        bed.pod(&worker(number));
    }
    assert_eq!(bed.settle(), []);
    let (_, message) = bed.reason("w0").expect("a reason");
    assert!(
        message.contains("no proof") && message.contains("a minimum of their own"),
        "{message}"
    );
}

#[test]
fn a_refusal_is_no_proof_where_members_of_a_segment_are_looked_for_where_each_may_be() {
    let mut bed = racks();
    bed.object(&segmented(2, 2));
    // Each takes a port of its own, which another has on every second node.
    for (number, (port, node)) in [(80, "a"), (81, "b")].into_iter().enumerate() {
        let other = on_port(pod(&format!("other-{number}"), "1"), port);
        bed.pod(&with(other, "/spec/nodeName", json!(node)));
        let number = u32::try_from(number).expect("few");
        bed.pod(&on_port(worker(number), port));
    }
    let full = with(pod("full", "3"), "/spec/nodeName", json!("c"));
    bed.pod(&full);
    assert_eq!(bed.settle(), []);
    let (reason, message) = bed.reason("w0").expect("a reason");
    assert_eq!(reason, "Unschedulable");
    assert!(
        message.contains("no proof") && message.contains("a subgroup of their own"),
        "{message}"
    );
}
