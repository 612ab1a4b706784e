use serde_json::{Value, json};

use super::kit::{Bed, gpu_pod, member, node, plugin_node, pod, pod_group, with};
use crate::bind::{FailureKind, OpKind, WriteOp};
use crate::core::CoreConfig;

fn urgent(name: &str, cpu: &str) -> Value {
    with(pod(name, cpu), "/spec/priority", json!(100))
}

fn evicted(orders: &[WriteOp]) -> Vec<String> {
    let evicts = orders.iter().filter_map(|order| match &order.kind {
        OpKind::Evict(evict) => Some(evict.pod.name.name.to_string()),
        _ => None,
    });
    evicts.collect()
}

fn bindings(orders: &[WriteOp]) -> usize {
    orders.iter().filter(|order| matches!(order.kind, OpKind::Bind(_))).count()
}

#[test]
fn a_pod_of_higher_priority_gets_the_place_when_the_other_has_left() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("low", "3"));
    bed.settle();
    bed.pod(&urgent("high", "3"));
    let orders = bed.orders();
    assert_eq!(evicted(&orders), ["low"]);
    assert_eq!(bindings(&orders), 0);
    assert!(
        orders.iter().any(|order| matches!(&order.kind,
        OpKind::Nominate { pod, node: Some(node) } if &*pod.name.name == "high" && &**node == "a"))
    );
    for order in &orders {
        bed.carry_out(order);
    }
    assert_eq!(bed.orders(), [], "the victim is still there");
    bed.drop_pod("low");
    assert_eq!(bed.settle(), [("high".to_owned(), "a".to_owned())]);
}

#[test]
fn a_gang_for_which_others_leave_is_not_forgotten_when_its_pods_are_told_that_they_wait() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("low", "3"));
    bed.settle();
    bed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        bed.pod(&with(member("g", name, "2"), "/spec/priority", json!(100)));
    }
    let orders = bed.orders();
    assert_eq!(evicted(&orders), ["low"]);
    // The condition that says so is a change of the pods, too.
    let condition = json!([{
        "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "promised",
    }]);
    let told = with(bed.pods["m0"].clone(), "/status/conditions", condition);
    bed.pod(&told);
    assert_eq!(evicted(&bed.orders()), Vec::<String>::new(), "who leaves was asked once");
    for order in &orders {
        bed.carry_out(order);
    }
    bed.drop_pod("low");
    assert_eq!(
        bed.settle(),
        [("m0".to_owned(), "a".to_owned()), ("m1".to_owned(), "a".to_owned())]
    );
}

#[test]
fn nobody_else_gets_the_place_meanwhile() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("low", "3"));
    bed.settle();
    bed.pod(&urgent("high", "3"));
    let orders = bed.orders();
    bed.pod(&pod("other", "2"));
    assert_eq!(bindings(&bed.orders()), 0);
    for order in &orders {
        bed.carry_out(order);
    }
    bed.drop_pod("low");
    assert_eq!(bed.settle(), [("high".to_owned(), "a".to_owned())]);
}

#[test]
fn who_may_not_preempt_waits() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("low", "3"));
    bed.settle();
    bed.pod(&with(urgent("high", "3"), "/spec/preemptionPolicy", json!("Never")));
    assert_eq!(bed.orders(), []);
    let mut bed = Bed::with_config(CoreConfig { preemption: false, ..CoreConfig::default() });
    bed.node(&node("a", 4));
    bed.pod(&pod("low", "3"));
    bed.settle();
    bed.pod(&urgent("high", "3"));
    assert_eq!(bed.orders(), []);
}

#[test]
fn an_eviction_that_is_refused_takes_the_promise_back() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("low", "3"));
    bed.settle();
    bed.pod(&urgent("high", "3"));
    let orders = bed.orders();
    for order in &orders {
        if matches!(order.kind, OpKind::Evict(_)) {
            bed.fail(order, FailureKind::Budget);
        } else {
            bed.carry_out(order);
        }
    }
    assert_eq!(evicted(&bed.orders()), Vec::<String>::new(), "it is left alone for a while");
    bed.drop_pod("low");
    assert_eq!(bed.settle(), [("high".to_owned(), "a".to_owned())]);
}

#[test]
fn a_preemptor_that_is_deleted_spares_its_victims() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&pod("low", "3"));
    bed.settle();
    bed.pod(&urgent("high", "3"));
    bed.orders();
    bed.drop_pod("high");
    // The place is the victim's until it is really gone.
    bed.pod(&pod("other", "2"));
    assert_eq!(bed.settle(), []);
    bed.drop_pod("low");
    assert_eq!(bed.settle(), [("other".to_owned(), "a".to_owned())]);
}

#[test]
fn a_movable_pod_makes_room_and_its_successor_has_its_place() {
    let config = CoreConfig { defragmentation_moves: 4, ..CoreConfig::default() };
    let mut bed = Bed::with_config(config);
    bed.node(&node("a", 4));
    bed.node(&node("b", 4));
    let owned = |name: &str| {
        let owners = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs",
            "controller": true,
        }]);
        let pod = with(pod(name, "2"), "/metadata/ownerReferences", owners);
        with(pod, "/metadata/annotations", json!({"octavo.dev/movable": "true"}))
    };
    bed.pod(&with(owned("one"), "/spec/nodeSelector", json!({"kubernetes.io/hostname": "a"})));
    bed.settle();
    // Both could be on either node from here on.
    let mut one = bed.pods["one"].clone();
    one["spec"].as_object_mut().expect("a spec").remove("nodeSelector");
    bed.pod(&one);
    bed.pod(&with(pod("two", "2"), "/spec/nodeSelector", json!({"kubernetes.io/hostname": "b"})));
    bed.settle();
    bed.pod(&pod("large", "4"));
    let orders = bed.orders();
    assert_eq!(evicted(&orders), ["one"]);
    for order in &orders {
        bed.carry_out(order);
    }
    bed.drop_pod("one");
    assert_eq!(bed.settle(), [("large".to_owned(), "a".to_owned())]);
    // Nobody else gets what is kept for the successor.
    bed.pod(&pod("other", "2"));
    assert_eq!(bed.settle(), []);
    bed.pod(&owned("one-again"));
    assert_eq!(bed.settle(), [("one-again".to_owned(), "b".to_owned())]);
}

#[test]
fn who_was_refused_is_decided_on_anew_when_a_running_pod_may_be_moved_from_now_on() {
    let config = CoreConfig { defragmentation_moves: 4, ..CoreConfig::default() };
    let mut bed = Bed::with_config(config);
    let owners = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs",
        "controller": true,
    }]);
    for on in ["a", "b"] {
        bed.node(&node(on, 4));
        bed.pod(&with(pod(on, "2"), "/metadata/ownerReferences", owners.clone()));
        let there = with(bed.pods[on].clone(), "/spec/nodeName", json!(on));
        bed.pod(&with(there, "/status/phase", json!("Running")));
    }
    bed.pod(&pod("large", "4"));
    assert_eq!(bed.orders(), []);
    // As the refusal advises.
    let movable = json!({"octavo.dev/movable": "true"});
    bed.pod(&with(bed.pods["b"].clone(), "/metadata/annotations", movable));
    assert_eq!(evicted(&bed.orders()), ["b"]);
}

#[test]
fn who_was_refused_is_decided_on_anew_when_a_gang_may_be_preempted_from_now_on() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    let old = pod_group("old", 2, json!({}));
    bed.object(&with(old.clone(), "/spec/preemptible", json!(false)));
    for name in ["o0", "o1"] {
        bed.pod(&member("old", name, "2"));
    }
    assert_eq!(bed.settle().len(), 2);
    bed.pod(&urgent("high", "4"));
    assert_eq!(bed.orders(), []);
    bed.object(&old);
    assert_eq!(evicted(&bed.orders()), ["o0", "o1"]);
}

fn on_port(pod: Value) -> Value {
    with(pod, "/spec/containers/0/ports", json!([{"containerPort": 9100, "hostPort": 9100}]))
}

#[test]
fn nobody_leaves_a_node_whose_port_stays_taken() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&with(on_port(pod("agent", "1")), "/spec/priority", json!(1000)));
    bed.settle();
    bed.pod(&pod("low", "3"));
    bed.settle();
    bed.pod(&on_port(urgent("high", "3")));
    assert_eq!(evicted(&bed.orders()), Vec::<String>::new());
    let (_, message) = bed.reason("high").expect("a reason");
    assert!(message.contains("free ports"), "{message}");
    // Where the port is free it is asked for.
    bed.node(&node("b", 4));
    bed.pod(&pod("low-too", "4"));
    assert_eq!(bed.settle(), [("high".to_owned(), "b".to_owned())]);
}

#[test]
fn who_has_the_port_leaves_with_it() {
    let mut bed = Bed::new();
    bed.node(&node("a", 4));
    bed.pod(&on_port(pod("low", "3")));
    bed.settle();
    bed.pod(&on_port(urgent("high", "3")));
    let orders = bed.orders();
    assert_eq!(evicted(&orders), ["low"]);
    for order in &orders {
        bed.carry_out(order);
    }
    bed.drop_pod("low");
    assert_eq!(bed.settle(), [("high".to_owned(), "a".to_owned())]);
}

#[test]
fn a_gang_with_a_port_has_others_leave_full_nodes() {
    let mut bed = Bed::new();
    for name in ["a", "b", "c"] {
        bed.node(&plugin_node(name));
        bed.pod(&with(gpu_pod(&format!("low-{name}"), 8), "/spec/nodeName", json!(name)));
    }
    // Not on c: the port is taken there.
    bed.pod(&with(on_port(pod("agent", "1")), "/spec/nodeName", json!("c")));
    bed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        let gpus = json!({"nvidia.com/gpu": "8"});
        let member = with(member("g", name, "1"), "/spec/containers/0/resources/limits", gpus);
        bed.pod(&on_port(with(member, "/spec/priority", json!(100))));
    }
    let orders = bed.orders();
    assert_eq!(super::kit::evicted(&orders), ["low-a", "low-b"]);
    for order in &orders {
        bed.carry_out(order);
    }
    bed.drop_pod("low-a");
    bed.drop_pod("low-b");
    assert_eq!(bed.settle().len(), 2);
}
