//! Which changes wake which refused entries.

use octavo_kube_io::objects::ObjectName;
use serde_json::{Value, json};

use super::fixtures::{Testbed, budget, ended, evicted, member, node, pod, pod_group, with};
use crate::state::SchedulerConfig;
use crate::state::queue::{QueueKey, State};

fn on(pod: &str, node: &str) -> (String, String) {
    (pod.to_owned(), node.to_owned())
}

/// Number of the last decision on a pod.
fn attempt(testbed: &Testbed, name: &str) -> u64 {
    let uid =
        testbed.scheduler.cache.pod_named(&ObjectName::new("team", name)).expect("the pod").clone();
    testbed.scheduler.queue.last_attempt(&QueueKey::Pod(uid))
}

fn state(testbed: &Testbed, name: &str) -> Option<State> {
    let uid =
        testbed.scheduler.cache.pod_named(&ObjectName::new("team", name)).expect("the pod").clone();
    testbed.scheduler.queue.state(&QueueKey::Pod(uid))
}

/// One node with four cores, all taken by pods of one core.
fn full() -> Testbed {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    for number in 0..4 {
        testbed.pod(&pod(&format!("running-{number}"), "1"));
    }
    assert_eq!(testbed.settle().len(), 4);
    testbed
}

#[test]
fn only_entries_that_fit_wake_when_a_pod_ends() {
    let mut testbed = full();
    testbed.pod(&pod("large", "2"));
    testbed.pod(&pod("small", "1"));
    testbed.settle();
    let before = attempt(&testbed, "large");
    ended(&mut testbed, "running-0");
    assert_eq!(testbed.settle(), [on("small", "a")]);
    assert_eq!(attempt(&testbed, "large"), before, "it does not fit");
    ended(&mut testbed, "running-1");
    ended(&mut testbed, "running-2");
    assert_eq!(testbed.settle(), [on("large", "a")]);
}

#[test]
fn of_equal_pods_as_many_are_decided_as_fit_and_one_more() {
    let mut testbed = full();
    for number in 0..100 {
        testbed.pod(&pod(&format!("wait-{number:03}"), "2"));
    }
    testbed.settle();
    let last = attempt(&testbed, "wait-099");
    testbed.node(&node("b", 5));
    assert_eq!(testbed.settle(), [on("wait-000", "b"), on("wait-001", "b")]);
    assert!(attempt(&testbed, "wait-002") > last, "no room is left for it");
    assert!(attempt(&testbed, "wait-003") <= last);
    let waiting = (0..100).filter(|number| state(&testbed, &format!("wait-{number:03}")).is_some());
    assert_eq!(waiting.count(), 98);
}

#[test]
fn a_new_equal_pod_is_refused_with_its_class() {
    let mut testbed = full();
    for name in ["first", "second"] {
        testbed.pod(&pod(name, "2"));
        testbed.settle();
    }
    assert_eq!(state(&testbed, "second"), Some(State::Unschedulable));
    testbed.drop_pod("first");
    testbed.node(&node("b", 2));
    assert_eq!(testbed.settle(), [on("second", "b")], "the rest of the class still wakes");
}

#[test]
fn freed_room_goes_to_the_highest_priority_of_all_classes() {
    let mut testbed = full();
    let zero = |pod| with(pod, "/spec/preemptionPolicy", json!("Never"));
    testbed.pod(&zero(pod("low", "1")));
    testbed.pod(&zero(with(pod("high", "2"), "/spec/priority", json!(10))));
    testbed.settle();
    // The class of the highest priority loses no place because others were faster before.
    for number in 0..3 {
        testbed.pod(&zero(with(pod(&format!("top-{number}"), "1"), "/spec/priority", json!(20))));
    }
    testbed.settle();
    for number in 0..3 {
        ended(&mut testbed, &format!("running-{number}"));
        assert_eq!(testbed.settle(), [on(&format!("top-{number}"), "a")]);
    }
    ended(&mut testbed, "top-0");
    assert_eq!(testbed.settle(), [on("low", "a")], "the only one that fits");
    ended(&mut testbed, "top-1");
    ended(&mut testbed, "top-2");
    assert_eq!(testbed.settle(), [on("high", "a")]);
}

#[test]
fn the_search_for_victims_backs_off() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&with(pod("low", "4"), "/metadata/labels", json!({"app": "web"})));
    testbed.settle();
    let of = |allowed| budget("web", json!({"app": "web"}), allowed);
    testbed.budget(&of(0));
    testbed.pod(&with(pod("high", "4"), "/spec/priority", json!(100)));
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
    // Each of these changes lets the pod look for victims again, in vain: the budget is closed by
    // then. The waits are 1, 2, 4, 8, 10 and 10 seconds.
    for wait in [1000, 2000, 4000, 8000, 10_000, 10_000] {
        let before = attempt(&testbed, "high");
        testbed.budget(&of(1));
        testbed.budget(&of(0));
        assert_eq!(evicted(&testbed.after(wait - 1)), [""; 0]);
        assert_eq!(attempt(&testbed, "high"), before, "before {wait} ms");
        assert_eq!(evicted(&testbed.after(1)), [""; 0]);
        assert!(attempt(&testbed, "high") > before, "after {wait} ms");
    }
    // A free place is found at once, whatever the backoff.
    testbed.node(&node("b", 4));
    assert_eq!(testbed.settle(), [on("high", "b")]);
}

#[test]
fn room_that_does_not_help_is_tried_once_a_second() {
    let mut testbed = Testbed::new();
    // The pod fits by all that is counted for each node. But its volume is attached elsewhere, which
    // only a decision finds out: here, anti-affinity of a running pod.
    testbed.node(&node("a", 8));
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "loud"}},
    }]}});
    let quiet = with(pod("quiet", "1"), "/spec/affinity", apart);
    let quiet = with(quiet, "/spec/schedulerName", json!("default-scheduler"));
    testbed.pod(&with(quiet, "/spec/nodeName", json!("a")));
    for number in 0..3 {
        testbed.pod(&pod(&format!("running-{number}"), "1"));
    }
    testbed.settle();
    testbed.pod(&with(pod("loud", "1"), "/metadata/labels", json!({"app": "loud"})));
    testbed.settle();
    let first = attempt(&testbed, "loud");
    ended(&mut testbed, "running-0");
    testbed.settle();
    let second = attempt(&testbed, "loud");
    assert!(second > first, "any pod that ends may have kept it away");
    ended(&mut testbed, "running-1");
    testbed.settle();
    assert_eq!(attempt(&testbed, "loud"), second, "it did not help last time");
    testbed.after(1000);
    assert!(attempt(&testbed, "loud") > second);
}

#[test]
fn a_refused_entry_is_tried_again_after_five_minutes() {
    let mut testbed = full();
    testbed.pod(&pod("large", "2"));
    testbed.settle();
    let before = attempt(&testbed, "large");
    testbed.after(299_000);
    assert_eq!(attempt(&testbed, "large"), before);
    testbed.after(10_000);
    assert!(attempt(&testbed, "large") > before);
}

#[test]
fn equal_pods_are_tried_after_five_minutes_though_the_first_is_tried_often() {
    let mut testbed = full();
    for name in ["first", "second"] {
        testbed.pod(&pod(name, "2"));
    }
    testbed.settle();
    let before = attempt(&testbed, "second");
    for _ in 0..2 {
        testbed.scheduler.cache.cluster_changed();
        testbed.after(145_000);
        assert_eq!(attempt(&testbed, "second"), before);
    }
    testbed.scheduler.cache.cluster_changed();
    testbed.after(20_000);
    assert!(attempt(&testbed, "second") > before);
}

#[test]
fn a_gang_wakes_only_when_a_member_fits() {
    let mut testbed = full();
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["g0", "g1"] {
        testbed.pod(&member("g", name, "2"));
    }
    testbed.settle();
    let key =
        QueueKey::Group(testbed.scheduler.cache.gangs().keys().next().expect("the gang").clone());
    let before = testbed.scheduler.queue.last_attempt(&key);
    ended(&mut testbed, "running-0");
    testbed.settle();
    assert_eq!(testbed.scheduler.queue.last_attempt(&key), before);
    ended(&mut testbed, "running-1");
    testbed.settle();
    assert!(testbed.scheduler.queue.last_attempt(&key) > before);
    ended(&mut testbed, "running-2");
    ended(&mut testbed, "running-3");
    testbed.settle();
    testbed.time(1000);
    assert_eq!(testbed.settle(), [on("g0", "a"), on("g1", "a")]);
}

#[test]
fn a_place_that_a_nominated_pod_gives_up_is_free_at_once() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&pod("low", "4"));
    testbed.settle();
    testbed.pod(&with(pod("high", "4"), "/spec/priority", json!(100)));
    testbed.settle();
    let never = with(pod("small", "1"), "/spec/preemptionPolicy", json!("Never"));
    testbed.pod(&never);
    assert_eq!(testbed.settle(), []);
    testbed.node(&node("b", 4));
    testbed.time(1000);
    assert_eq!(testbed.settle(), [on("high", "b")]);
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), [on("small", "a")]);
}

#[test]
fn room_for_a_pod_that_may_move_wakes_those_that_need_its_node() {
    let config = SchedulerConfig { defragmentation_moves: 4, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    let owners = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "uid-rs",
        "controller": true,
    }]);
    testbed.node(&node("a", 4));
    let movable = with(pod("movable", "2"), "/metadata/ownerReferences", owners);
    let movable = with(movable, "/metadata/annotations", json!({"octavo.dev/movable": "true"}));
    testbed.pod(&movable);
    testbed.settle();
    testbed.node(&node("b", 2));
    let there = json!({"kubernetes.io/hostname": "b"});
    testbed.pod(&with(pod("other", "2"), "/spec/nodeSelector", there));
    testbed.settle();
    testbed.pod(&with(pod("large", "4"), "/spec/preemptionPolicy", json!("Never")));
    testbed.settle();
    let first = attempt(&testbed, "large");
    let other = with(testbed.pods["other"].clone(), "/status/phase", json!("Succeeded"));
    testbed.pod(&other);
    let ops = testbed.after(1000);
    assert!(attempt(&testbed, "large") > first);
    assert_eq!(evicted(&ops), ["movable"]);
}

#[test]
fn devices_that_come_or_lose_a_taint_wake_those_that_ask_for_devices() {
    let mut testbed = super::claims::testbed(&[], 0);
    testbed.node(&node("a", 4));
    let tainted = |mut slice: Value| {
        for device in slice["spec"]["devices"].as_array_mut().expect("devices") {
            device["taints"] = json!([{"key": "sick", "effect": "NoSchedule"}]);
        }
        slice
    };
    let slice = super::claims::slice("a", 1);
    testbed.slice(&tainted(slice.clone()));
    testbed.claim(&super::claims::claim("p-gpu", "p"));
    testbed.pod(&super::claims::claiming("p"));
    testbed.pod(&pod("plain", "9"));
    assert_eq!(testbed.settle(), []);
    let plain = attempt(&testbed, "plain");
    testbed.slice(&slice);
    assert_eq!(testbed.settle(), [on("p", "a")]);
    assert_eq!(attempt(&testbed, "plain"), plain, "it asks for none");
}

#[test]
fn a_new_equal_pod_searches_no_victims_while_its_class_backs_off() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 4));
    testbed.pod(&with(pod("low", "4"), "/metadata/labels", json!({"app": "web"})));
    testbed.settle();
    let of = |allowed| budget("web", json!({"app": "web"}), allowed);
    testbed.budget(&of(0));
    let high = |name: &str| with(pod(name, "4"), "/spec/priority", json!(100));
    testbed.pod(&high("old"));
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
    testbed.budget(&of(1));
    testbed.pod(&high("young"));
    assert_eq!(evicted(&testbed.after(999)), [""; 0]);
    assert!(testbed.reason("young").is_some(), "its reason is reported nevertheless");
    let ops = testbed.after(1);
    assert_eq!(evicted(&ops), ["low"]);
    assert_eq!(state(&testbed, "old"), Some(State::Nominated), "the older one is first");
}

#[test]
fn the_condition_of_all_equal_pods_changes_with_the_reason() {
    let mut testbed = full();
    for name in ["p", "q"] {
        testbed.pod(&pod(name, "2"));
    }
    testbed.settle();
    assert_eq!(testbed.reason("q").expect("a reason").1, "the pod fits no node: insufficient CPU");
    testbed.node(&with(node("a", 4), "/spec/unschedulable", json!(true)));
    testbed.settle();
    testbed.after(310_000);
    for name in ["p", "q"] {
        let (_, message) = testbed.reason(name).expect("a reason");
        assert_eq!(message, "no node is feasible: node(s) were unschedulable", "{name}");
    }
}
