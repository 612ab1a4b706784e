//! Gangs with constraints that the engine's shapes do not express.

use serde_json::{Value, json};

use super::claims::{claim, slice, testbed as testbed_with_gpus};
use super::fixtures::{Testbed, evicted, member, node, plugin_node, pod, pod_group, with};
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

/// Nodes of the bound pods, each once.
fn nodes(bound: &[(String, String)]) -> Vec<&str> {
    let mut nodes: Vec<&str> = bound.iter().map(|(_, node)| node.as_str()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

#[test]
fn members_with_the_same_host_port_go_to_different_nodes() {
    let mut testbed = Testbed::new();
    for number in 0..18 {
        testbed.node(&plugin_node(&format!("n{number:02}")));
    }
    testbed.object(&pod_group("g", 16, json!({})));
    for number in 0..16 {
        testbed.pod(&on_port(gpu_member("g", &format!("m{number:02}"), 1), 29_500));
    }
    let bound = testbed.settle();
    assert_eq!((bound.len(), nodes(&bound).len()), (16, 16), "{bound:?}");
}

#[test]
fn a_member_with_a_port_joins_members_without_one() {
    let mut testbed = Testbed::new();
    testbed.node(&plugin_node("a"));
    testbed.object(&pod_group("g", 1, json!({})));
    testbed.pod(&gpu_member("g", "early", 1));
    assert_eq!(testbed.settle().len(), 1);
    // It requests the same amounts, and a port in addition.
    testbed.pod(&on_port(gpu_member("g", "late", 1), 29_500));
    assert_eq!(testbed.settle(), [("late".to_owned(), "a".to_owned())]);
}

#[test]
fn a_gang_with_more_port_users_than_nodes_is_unschedulable() {
    let mut testbed = Testbed::new();
    for name in ["a", "b"] {
        testbed.node(&plugin_node(name));
    }
    testbed.object(&pod_group("g", 3, json!({})));
    for name in ["m0", "m1", "m2"] {
        testbed.pod(&on_port(gpu_member("g", name, 1), 29_500));
    }
    assert_eq!(testbed.settle(), []);
    let (reason, message) = testbed.reason("m0").expect("a reason");
    assert_eq!(reason, "Unschedulable");
    assert!(message.contains("no more of them may be"), "{message}");
}

#[test]
fn two_subgroups_share_a_port() {
    let mut testbed = Testbed::new();
    for number in 0..16 {
        testbed.node(&plugin_node(&format!("n{number:02}")));
    }
    let subs = json!([{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 15}]);
    testbed.object(&group_of(&subs));
    testbed.pod(&on_port(sub(gpu_member("g", "leader", 2), "leader"), 29_500));
    for number in 0..15 {
        let worker = sub(gpu_member("g", &format!("w{number:02}"), 1), "worker");
        testbed.pod(&on_port(worker, 29_500));
    }
    let bound = testbed.settle();
    assert_eq!((bound.len(), nodes(&bound).len()), (16, 16), "{bound:?}");
}

#[test]
fn ports_of_one_address_and_of_every_address_exclude_one_another() {
    let at = |pod: Value, ip: &str| {
        let ports = json!([{"containerPort": 80, "hostPort": 80, "hostIP": ip}]);
        with(pod, "/spec/containers/0/ports", ports)
    };
    let mut testbed = Testbed::new();
    for name in ["a", "b"] {
        testbed.node(&node(name, 8));
    }
    testbed.object(&pod_group("g", 3, json!({})));
    testbed.pod(&at(member("g", "m0", "1"), "10.0.0.1"));
    testbed.pod(&at(member("g", "m1", "1"), "10.0.0.2"));
    testbed.pod(&at(member("g", "m2", "1"), "0.0.0.0"));
    let bound = testbed.settle();
    assert_eq!(bound.len(), 3);
    // The two addresses share a node, or the third pod would be infeasible.
    assert_eq!(bound[0].1, bound[1].1);
    assert_ne!(bound[1].1, bound[2].1);
}

#[test]
fn an_occupied_port_excludes_members_that_need_it() {
    let mut testbed = Testbed::new();
    for name in ["a", "b", "c"] {
        testbed.node(&node(name, 4));
    }
    for name in ["a", "b"] {
        let daemon = on_port(super::fixtures::pod(&format!("daemon-{name}"), "1"), 29_500);
        let daemon = with(daemon, "/spec/nodeName", json!(name));
        testbed.pod(&with(daemon, "/status/phase", json!("Running")));
    }
    let subs = json!([{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 2}]);
    testbed.object(&group_of(&subs));
    testbed.pod(&on_port(sub(member("g", "leader", "3"), "leader"), 29_500));
    for name in ["w0", "w1"] {
        testbed.pod(&sub(member("g", name, "3"), "worker"));
    }
    let bound = testbed.settle();
    let own = |pod: &str| bound.iter().find(|(name, _)| name == pod).map(|(_, node)| node.as_str());
    assert_eq!(own("leader"), Some("c"), "{bound:?}");
    assert_eq!(nodes(&bound), ["a", "b", "c"]);
}

#[test]
fn each_member_is_excluded_by_its_own_ports() {
    let mut testbed = Testbed::new();
    for name in ["a", "b", "c"] {
        testbed.node(&node(name, 4));
    }
    for name in ["a", "b"] {
        let daemon = on_port(super::fixtures::pod(&format!("daemon-{name}"), "1"), 29_500);
        let daemon = with(daemon, "/spec/nodeName", json!(name));
        testbed.pod(&with(daemon, "/status/phase", json!("Running")));
    }
    testbed.object(&pod_group("g", 3, json!({})));
    testbed.pod(&member("g", "m0", "3"));
    testbed.pod(&on_port(member("g", "m1", "3"), 29_500));
    testbed.pod(&member("g", "m2", "3"));
    let bound = testbed.settle();
    assert_eq!(bound.iter().find(|(pod, _)| pod == "m1").map(|(_, node)| &**node), Some("c"));
    assert_eq!(nodes(&bound), ["a", "b", "c"]);
}

/// A claim that several pods use.
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
fn a_leader_with_an_allocated_claim_and_workers_on_other_nodes() {
    let mut testbed = Testbed::new();
    testbed.class(&super::claims::class());
    for (name, cpu) in [("a", 2), ("b", 8), ("c", 8)] {
        testbed.node(&node(name, cpu));
        testbed.slice(&slice(name, 1));
    }
    let mut held = shared_claim("of-a");
    held["status"]["allocation"] = json!({
        "devices": {"results": [{
            "request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-0"}]},
        "nodeSelector": on_node("a"),
    });
    testbed.claim(&held);
    let subs = json!([{"name": "leader", "minMember": 1}, {"name": "worker", "minMember": 2}]);
    testbed.object(&group_of(&subs));
    testbed.pod(&using(sub(member("g", "leader", "1"), "leader"), "of-a"));
    for name in ["w0", "w1"] {
        testbed.pod(&sub(member("g", name, "8"), "worker"));
    }
    let bound = testbed.settle();
    let expected = [("leader", "a"), ("w0", "b"), ("w1", "c")];
    let expected = expected.map(|(pod, node)| (pod.to_owned(), node.to_owned()));
    assert_eq!(bound, expected);
}

/// Binds of a gang whose members share one claim, as pods with nodes.
fn sharers(testbed: &mut Testbed) -> Vec<(String, String)> {
    let mut bound = Vec::new();
    for _ in 0..8 {
        for op in testbed.ops() {
            if let OpKind::Bind(bind) = &op.kind {
                bound.push((bind.pod.name.name.to_string(), bind.node.to_string()));
            }
            testbed.complete(&op);
        }
    }
    bound.sort();
    bound
}

#[test]
fn members_that_share_a_claim_go_where_it_is() {
    // Each node has one GPU, which all members share, and room for two or three members.
    let mut testbed = testbed_with_gpus(&[], 0);
    for (name, cpu) in [("a", 2), ("b", 2), ("c", 3), ("d", 2)] {
        testbed.node(&node(name, cpu));
        testbed.slice(&slice(name, 1));
    }
    testbed.claim(&shared_claim("one"));
    testbed.object(&pod_group("g", 3, json!({})));
    for name in ["m0", "m1", "m2"] {
        testbed.pod(&using(member("g", name, "1"), "one"));
    }
    let bound = sharers(&mut testbed);
    assert_eq!((bound.len(), nodes(&bound)), (3, vec!["c"]), "{bound:?}");
}

#[test]
fn members_sharing_a_claim_are_unschedulable_without_a_node_for_all() {
    let mut testbed = testbed_with_gpus(&[], 0);
    for name in ["a", "b"] {
        testbed.node(&node(name, 2));
        testbed.slice(&slice(name, 1));
    }
    testbed.claim(&shared_claim("one"));
    testbed.object(&pod_group("g", 3, json!({})));
    for name in ["m0", "m1", "m2"] {
        testbed.pod(&using(member("g", name, "1"), "one"));
    }
    assert_eq!(sharers(&mut testbed), []);
    assert_eq!(testbed.reason("m0").map(|(reason, _)| reason), Some("Unschedulable"));
    // Failed attempts have released their devices.
    testbed.claim(&claim("p-gpu", "p"));
    testbed.pod(&super::claims::claiming("p"));
    assert_eq!(testbed.settle().len(), 1);
}

/// A node with one device of a plugin that the engine does not model.
fn with_card(node: Value) -> Value {
    let node = with(node, "/status/allocatable/example.com~1card", json!("1"));
    with(node, "/status/capacity/example.com~1card", json!("1"))
}

fn with_one_card(pod: Value) -> Value {
    with(pod, "/spec/containers/0/resources/limits", json!({"example.com/card": "1"}))
}

#[test]
fn members_with_uncounted_resources_are_spread() {
    let mut testbed = Testbed::new();
    for number in 0..12 {
        testbed.node(&with_card(node(&format!("n{number:02}"), 64)));
    }
    testbed.object(&pod_group("g", 12, json!({})));
    for number in 0..12 {
        testbed.pod(&with_one_card(member("g", &format!("m{number:02}"), "1")));
    }
    let bound = testbed.settle();
    assert_eq!((bound.len(), nodes(&bound).len()), (12, 12), "{bound:?}");
}

#[test]
fn a_gang_avoids_a_rack_short_of_uncounted_resources() {
    let racked = |name: &str, rack: &str| {
        with(with_card(node(name, 8)), "/metadata/labels/topology.octavo.dev~1rack", json!(rack))
    };
    let mut testbed = Testbed::new();
    for (name, rack) in [("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2"), ("e", "r2")] {
        testbed.node(&racked(name, rack));
    }
    testbed.object(&pod_group("g", 3, json!({"required": "rack"})));
    for name in ["m0", "m1", "m2"] {
        testbed.pod(&with_one_card(member("g", name, "2")));
    }
    let bound = testbed.settle();
    assert_eq!(nodes(&bound), ["c", "d", "e"], "{bound:?}");
}

fn segmented(min: u32, size: u32) -> Value {
    let segment = json!({"size": size, "level": "rack"});
    group_of(&json!([{"name": "worker", "minMember": min, "segment": segment}]))
}

fn racks() -> Testbed {
    let mut testbed = Testbed::new();
    for (name, rack) in [("a", "r1"), ("b", "r2"), ("c", "r3")] {
        let rack_label = "/metadata/labels/topology.octavo.dev~1rack";
        testbed.node(&with(node(name, 3), rack_label, json!(rack)));
    }
    testbed
}

fn worker(number: u32) -> Value {
    sub(member("g", &format!("w{number}"), "1"), "worker")
}

#[test]
fn members_of_an_incomplete_segment_wait_with_a_reason() {
    let mut testbed = racks();
    testbed.object(&segmented(4, 2));
    for number in 0..5 {
        testbed.pod(&worker(number));
    }
    let bound = testbed.settle();
    assert_eq!(bound.len(), 4);
    let on = |number: usize| &bound[number].1;
    assert!(on(0) == on(1) && on(2) == on(3), "{bound:?}");
    let (reason, message) = testbed.reason("w4").expect("a reason");
    assert_eq!(reason, "IncompleteSegment");
    assert!(message.contains("2 members") && message.contains('5'), "{message}");
    assert_eq!(all_reasons(&testbed, "w4"), ["IncompleteSegment"], "no other reason at any time");
    testbed.pod(&worker(5));
    let bound = testbed.settle();
    assert_eq!((bound.len(), nodes(&bound).len()), (2, 1), "{bound:?}");
}

/// All reasons reported for a pod and for its gang, except for the gang's `Scheduled`.
fn all_reasons(testbed: &Testbed, who: &str) -> Vec<&'static str> {
    let reported = testbed.reports.iter().filter_map(|report| match report {
        StatusUpdate::PodUnschedulable { pod, status_text, .. } if &*pod.name.name == who => {
            Some(status_text.reason)
        }
        StatusUpdate::Group(group) if group.status_text.reason != "Scheduled" => {
            Some(group.status_text.reason)
        }
        _ => None,
    });
    let mut reported: Vec<_> = reported.filter(|reason| *reason != "Gathering").collect();
    reported.dedup();
    reported
}

#[test]
fn an_incomplete_segment_is_not_reported_as_a_lack_of_room() {
    let mut testbed = racks();
    for on in ["a", "b", "c"] {
        testbed.pod(&with(
            pod(on, "3"),
            "/spec/nodeSelector",
            json!({"kubernetes.io/hostname": on}),
        ));
    }
    assert_eq!(testbed.settle().len(), 3);
    testbed.object(&segmented(2, 2));
    for number in 0..3 {
        testbed.pod(&with(worker(number), "/spec/priority", json!(100)));
    }
    let ops = testbed.ops();
    let [victim] = &evicted(&ops)[..] else { panic!("one victim: {ops:?}") };
    for op in &ops {
        testbed.complete(op);
    }
    testbed.drop_pod(victim);
    assert_eq!(testbed.settle().len(), 2);
    assert_eq!(testbed.reason("w2").map(|(reason, _)| reason), Some("IncompleteSegment"));
    let is_no_room = |report: &StatusUpdate| {
        matches!(report,
        StatusUpdate::PodUnschedulable { status_text, .. } if status_text.message.contains("room for more"))
    };
    assert!(!testbed.reports.iter().any(is_no_room), "{:?}", testbed.reports);
}

#[test]
fn members_of_one_segment_ask_for_the_same() {
    let mut testbed = racks();
    testbed.object(&segmented(4, 2));
    for number in 0..3 {
        testbed.pod(&worker(number));
    }
    testbed.pod(&sub(member("g", "w3", "2"), "worker"));
    assert_eq!(testbed.settle(), []);
    let (reason, message) = testbed.reason("w0").expect("a reason");
    assert_eq!(reason, "UnevenSegment");
    assert!(message.contains("worker") && message.contains('2'), "{message}");
}

#[test]
fn differing_members_of_a_subgroup_share_the_required_rack() {
    let rack_label = "/metadata/labels/topology.octavo.dev~1rack";
    let on = |pod: Value, name: &str| {
        with(pod, "/spec/nodeSelector", json!({"kubernetes.io/hostname": name}))
    };
    for (rack, bound) in [("r1", 2), ("r2", 0)] {
        let mut testbed = racks();
        testbed.node(&with(node("d", 3), rack_label, json!(rack)));
        let topology = json!({"required": "rack"});
        testbed
            .object(&group_of(&json!([{"name": "worker", "minMember": 2, "topology": topology}])));
        testbed.pod(&on(worker(0), "a"));
        testbed.pod(&on(worker(1), "d"));
        assert_eq!(testbed.settle().len(), bound, "{rack}");
    }
}

#[test]
fn a_refusal_with_members_chosen_beforehand_is_no_proof() {
    let on = |pod: Value, name: &str| {
        with(pod, "/spec/nodeSelector", json!({"kubernetes.io/hostname": name}))
    };
    let mut testbed = racks();
    let topology = json!({"required": "rack"});
    testbed.object(&group_of(&json!([{"name": "worker", "minMember": 2, "topology": topology}])));
    for number in 0..2 {
        testbed.pod(&on(worker(number), "nowhere"));
    }
    assert_eq!(testbed.settle(), []);
    let (reason, message) = testbed.reason("w0").expect("a reason");
    assert_eq!(reason, "Unschedulable");
    assert!(!message.contains("not certain"), "{message}");
    for number in 2..4 {
        testbed.pod(&worker(number));
    }
    assert_eq!(testbed.settle(), []);
    let (_, message) = testbed.reason("w0").expect("a reason");
    assert!(
        message.contains("not certain") && message.contains("a minimum of their own"),
        "{message}"
    );
}

#[test]
fn a_refusal_of_differing_segment_members_is_no_proof() {
    let mut testbed = racks();
    testbed.object(&segmented(2, 2));
    // Each uses its own port, which is occupied on every second node.
    for (number, (port, node)) in [(80, "a"), (81, "b")].into_iter().enumerate() {
        let other = on_port(pod(&format!("other-{number}"), "1"), port);
        testbed.pod(&with(other, "/spec/nodeName", json!(node)));
        let number = u32::try_from(number).expect("few");
        testbed.pod(&on_port(worker(number), port));
    }
    let full = with(pod("full", "3"), "/spec/nodeName", json!("c"));
    testbed.pod(&full);
    assert_eq!(testbed.settle(), []);
    let (reason, message) = testbed.reason("w0").expect("a reason");
    assert_eq!(reason, "Unschedulable");
    assert!(
        message.contains("not certain") && message.contains("a subgroup of their own"),
        "{message}"
    );
}
