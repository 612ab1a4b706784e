use serde_json::{Value, json};

use super::fixtures::{Testbed, gpu_pod, member, node, plugin_node, pod, pod_group, with};
use crate::bind::{FailureKind, OpKind, WriteOp};
use crate::state::SchedulerConfig;

fn urgent(name: &str, cpu: &str) -> Value {
    with(pod(name, cpu), "/spec/priority", json!(100))
}

fn evicted(ops: &[WriteOp]) -> Vec<String> {
    let evicts = ops.iter().filter_map(|op| match &op.kind {
        OpKind::Evict(evict) => Some(evict.pod.name.name.to_string()),
        _ => None,
    });
    evicts.collect()
}

fn bindings(ops: &[WriteOp]) -> usize {
    ops.iter().filter(|op| matches!(op.kind, OpKind::Bind(_))).count()
}

#[test]
fn a_preemptor_is_bound_after_its_victim_left() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    testbed.pod(&urgent("high", "3"));
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["low"]);
    assert_eq!(bindings(&ops), 0);
    assert!(
        ops.iter().any(|op| matches!(&op.kind,
        OpKind::Nominate { pod, node: Some(node) } if &*pod.name.name == "high" && &**node == "a"))
    );
    for op in &ops {
        testbed.complete(op);
    }
    assert_eq!(testbed.ops(), [], "the victim is still there");
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [("high".to_owned(), "a".to_owned())]);
}

#[test]
fn a_nominated_gang_survives_its_own_condition_update() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        testbed.pod(&with(member("g", name, "2"), "/spec/priority", json!(100)));
    }
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["low"]);
    // The condition that reports the nomination changes the pod, too.
    let condition = json!([{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "promised",
    }]);
    let reported = with(testbed.pods["m0"].clone(), "/status/conditions", condition);
    testbed.pod(&reported);
    assert_eq!(evicted(&testbed.ops()), Vec::<String>::new(), "victims are evicted once");
    for op in &ops {
        testbed.complete(op);
    }
    testbed.drop_pod("low");
    assert_eq!(
        testbed.settle(),
        [("m0".to_owned(), "a".to_owned()), ("m1".to_owned(), "a".to_owned())]
    );
}

#[test]
fn a_nominated_place_is_not_given_to_others() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    testbed.pod(&urgent("high", "3"));
    let ops = testbed.ops();
    testbed.pod(&pod("other", "2"));
    assert_eq!(bindings(&testbed.ops()), 0);
    for op in &ops {
        testbed.complete(op);
    }
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [("high".to_owned(), "a".to_owned())]);
}

#[test]
fn a_pod_without_preemption_waits() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    testbed.pod(&with(urgent("high", "3"), "/spec/preemptionPolicy", json!("Never")));
    assert_eq!(testbed.ops(), []);
    let mut testbed =
        Testbed::with_config(SchedulerConfig { preemption: false, ..SchedulerConfig::default() });
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    testbed.pod(&urgent("high", "3"));
    assert_eq!(testbed.ops(), []);
}

#[test]
fn a_rejected_eviction_drops_the_nomination() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    testbed.pod(&urgent("high", "3"));
    let ops = testbed.ops();
    for op in &ops {
        if matches!(op.kind, OpKind::Evict(_)) {
            testbed.fail(op, FailureKind::Budget);
        } else {
            testbed.complete(op);
        }
    }
    assert_eq!(
        evicted(&testbed.ops()),
        Vec::<String>::new(),
        "an eviction is not repeated at once"
    );
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [("high".to_owned(), "a".to_owned())]);
}

#[test]
fn a_preemptor_that_is_deleted_spares_its_victims() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    testbed.pod(&urgent("high", "3"));
    testbed.ops();
    testbed.drop_pod("high");
    // The place belongs to the victim until it is gone.
    testbed.pod(&pod("other", "2"));
    assert_eq!(testbed.settle(), []);
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [("other".to_owned(), "a".to_owned())]);
}

#[test]
fn a_movable_pod_makes_room_and_its_successor_has_its_place() {
    let config = SchedulerConfig { defragmentation_moves: 4, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    testbed.node(&node("a", 4));
    testbed.node(&node("b", 4));
    let owned = |name: &str| {
        let owners = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs",
            "controller": true,
        }]);
        let pod = with(pod(name, "2"), "/metadata/ownerReferences", owners);
        with(pod, "/metadata/annotations", json!({"octavo.dev/movable": "true"}))
    };
    testbed.pod(&with(owned("one"), "/spec/nodeSelector", json!({"kubernetes.io/hostname": "a"})));
    testbed.settle();
    // From here on both could run on either node.
    let mut one = testbed.pods["one"].clone();
    one["spec"].as_object_mut().expect("a spec").remove("nodeSelector");
    testbed.pod(&one);
    testbed.pod(&with(
        pod("two", "2"),
        "/spec/nodeSelector",
        json!({"kubernetes.io/hostname": "b"}),
    ));
    testbed.settle();
    testbed.pod(&pod("large", "4"));
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["one"]);
    for op in &ops {
        testbed.complete(op);
    }
    testbed.drop_pod("one");
    assert_eq!(testbed.settle(), [("large".to_owned(), "a".to_owned())]);
    // No other pod gets the place of the successor.
    testbed.pod(&pod("other", "2"));
    assert_eq!(testbed.settle(), []);
    testbed.pod(&owned("one-again"));
    assert_eq!(testbed.settle(), [("one-again".to_owned(), "b".to_owned())]);
}

#[test]
fn an_unschedulable_pod_is_retried_when_a_pod_becomes_movable() {
    let config = SchedulerConfig { defragmentation_moves: 4, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    let owners = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs",
        "controller": true,
    }]);
    for on in ["a", "b"] {
        testbed.node(&node(on, 4));
        testbed.pod(&with(pod(on, "2"), "/metadata/ownerReferences", owners.clone()));
        let there = with(testbed.pods[on].clone(), "/spec/nodeName", json!(on));
        testbed.pod(&with(there, "/status/phase", json!("Running")));
    }
    testbed.pod(&pod("large", "4"));
    assert_eq!(testbed.ops(), []);
    // As the hint advises.
    let movable = json!({"octavo.dev/movable": "true"});
    testbed.pod(&with(testbed.pods["b"].clone(), "/metadata/annotations", movable));
    assert_eq!(evicted(&testbed.after(1000)), ["b"]);
}

#[test]
fn an_unschedulable_pod_is_retried_when_a_gang_becomes_preemptible() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    let old = pod_group("old", 2, json!({}));
    testbed.object(&with(old.clone(), "/spec/preemptible", json!(false)));
    for name in ["o0", "o1"] {
        testbed.pod(&member("old", name, "2"));
    }
    assert_eq!(testbed.settle().len(), 2);
    testbed.pod(&urgent("high", "4"));
    assert_eq!(testbed.ops(), []);
    testbed.object(&old);
    assert_eq!(evicted(&testbed.after(1000)), ["o0", "o1"]);
}

fn on_port(pod: Value) -> Value {
    with(pod, "/spec/containers/0/ports", json!([{"containerPort": 9100, "hostPort": 9100}]))
}

#[test]
fn no_eviction_where_the_port_stays_occupied() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&with(on_port(pod("agent", "1")), "/spec/priority", json!(1000)));
    testbed.settle();
    testbed.pod(&pod("low", "3"));
    testbed.settle();
    testbed.pod(&on_port(urgent("high", "3")));
    assert_eq!(evicted(&testbed.ops()), Vec::<String>::new());
    let (_, message) = testbed.reason("high").expect("a reason");
    assert!(message.contains("free ports"), "{message}");
    // A node with a free port is used.
    testbed.node(&node("b", 4));
    testbed.pod(&pod("low-too", "4"));
    assert_eq!(testbed.settle(), [("high".to_owned(), "b".to_owned())]);
}

#[test]
fn the_holder_of_the_port_is_evicted() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&on_port(pod("low", "3")));
    testbed.settle();
    testbed.pod(&on_port(urgent("high", "3")));
    let ops = testbed.ops();
    assert_eq!(evicted(&ops), ["low"]);
    for op in &ops {
        testbed.complete(op);
    }
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [("high".to_owned(), "a".to_owned())]);
}

#[test]
fn a_gang_with_a_port_preempts_on_full_nodes() {
    let mut testbed = Testbed::new();
    for name in ["a", "b", "c"] {
        testbed.node(&plugin_node(name));
        testbed.pod(&with(gpu_pod(&format!("low-{name}"), 8), "/spec/nodeName", json!(name)));
    }
    // Not on `c`, whose port is occupied.
    testbed.pod(&with(on_port(pod("agent", "1")), "/spec/nodeName", json!("c")));
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        let gpus = json!({"nvidia.com/gpu": "8"});
        let member = with(member("g", name, "1"), "/spec/containers/0/resources/limits", gpus);
        testbed.pod(&on_port(with(member, "/spec/priority", json!(100))));
    }
    let ops = testbed.ops();
    assert_eq!(super::fixtures::evicted(&ops), ["low-a", "low-b"]);
    for op in &ops {
        testbed.complete(op);
    }
    testbed.drop_pod("low-a");
    testbed.drop_pod("low-b");
    assert_eq!(testbed.settle().len(), 2);
}
