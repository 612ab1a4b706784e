//! Which changes wake which refused entries.

use octavo_kube_io::objects::ObjectName;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixtures::{
    Testbed, budget, evicted, gpu_pod, member, node, plugin_node, pod, pod_group, with,
};
use crate::bind::OpKind;
use crate::state::SchedulerConfig;
use crate::state::queue::{QueueKey, State};

fn on(pod: &str, node: &str) -> (String, String) {
    (pod.to_owned(), node.to_owned())
}

fn ended(testbed: &mut Testbed, name: &str) {
    let pod = with(testbed.pods[name].clone(), "/status/phase", json!("Succeeded"));
    testbed.pod(&pod);
}

/// Number of the last decision on a pod.
fn attempt(testbed: &Testbed, name: &str) -> u64 {
    let uid = testbed.scheduler.by_name[&ObjectName::new("team", name)].clone();
    testbed.scheduler.queue.last_attempt(&QueueKey::Pod(uid))
}

fn state(testbed: &Testbed, name: &str) -> Option<State> {
    let uid = testbed.scheduler.by_name[&ObjectName::new("team", name)].clone();
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
fn a_gang_wakes_only_when_a_member_fits() {
    let mut testbed = full();
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["g0", "g1"] {
        testbed.pod(&member("g", name, "2"));
    }
    testbed.settle();
    let key = QueueKey::Group(testbed.scheduler.members.keys().next().expect("the gang").clone());
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

/// An event of the random test.
#[derive(Clone, Copy, Debug)]
enum Event {
    Create { cpu: u8, gpus: u8, priority: u8, kind: u8 },
    CreateGang { cpu: u8, members: u8, priority: u8 },
    End(u8),
    Delete(u8),
    Cordon(u8, bool),
    Resize(u8, u8),
    AddNode(u8),
    Budget(u8),
    Relabel(u8),
}

/// A testbed that carries out all operations: victims leave at once.
struct World {
    testbed: Testbed,
    created: usize,
    nodes: Vec<(String, Value)>,
}

impl World {
    fn new() -> Self {
        let mut world = Self { testbed: Testbed::new(), created: 0, nodes: Vec::new() };
        for (name, value) in [("n0", node("n0", 4)), ("n1", plugin_node("n1"))] {
            world.set_node(name, value);
        }
        world.testbed.budget(&budget("kind-1", json!({"kind": "1"}), 1));
        world
    }

    fn set_node(&mut self, name: &str, value: Value) {
        self.testbed.node(&value);
        match self.nodes.iter_mut().find(|(other, _)| other == name) {
            Some((_, node)) => *node = value,
            None => self.nodes.push((name.to_owned(), value)),
        }
    }

    fn change_node(&mut self, which: u8, pointer: &str, value: Value) {
        let (name, node) = self.nodes[usize::from(which) % self.nodes.len()].clone();
        self.set_node(&name, with(node, pointer, value));
    }

    fn pod_named(&self, which: u8) -> Option<String> {
        let names: Vec<_> = self.testbed.pods.keys().collect();
        names.get(usize::from(which).checked_rem(names.len())?).map(|name| (*name).clone())
    }

    fn create(&mut self, pod: Value, priority: u8, kind: u8) {
        let mut pod = with(pod, "/spec/priority", json!(i32::from(priority) * 10));
        pod["metadata"]["labels"]["kind"] = json!(kind.to_string());
        if kind == 2 {
            pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
        }
        if kind == 4 {
            let terms = json!([{"topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"kind": "4"}}}]);
            pod["spec"]["affinity"]["podAntiAffinity"] =
                json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
        }
        if kind == 5 {
            let terms = json!([{"topologyKey": "kubernetes.io/hostname",
                "labelSelector": {"matchLabels": {"kind": "1"}}}]);
            pod["spec"]["affinity"]["podAffinity"] =
                json!({"requiredDuringSchedulingIgnoredDuringExecution": terms});
        }
        if kind == 3 {
            pod["spec"]["nodeSelector"] = json!({"zone": "z1"});
        }
        self.testbed.pod(&pod);
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Create { cpu, gpus, priority, kind } => {
                self.created += 1;
                let name = format!("p{}", self.created);
                let pod = if gpus > 0 {
                    gpu_pod(&name, u32::from(gpus))
                } else {
                    pod(&name, &cpu.to_string())
                };
                self.create(pod, priority, kind);
            }
            Event::CreateGang { cpu, members, priority } => {
                self.created += 1;
                let group = format!("g{}", self.created);
                self.testbed.object(&pod_group(&group, members.into(), json!({})));
                for number in 0..members {
                    let name = format!("{group}-{number}");
                    self.create(member(&group, &name, &cpu.to_string()), priority, 0);
                }
            }
            Event::End(which) => {
                if let Some(name) = self.pod_named(which)
                    && self.testbed.pods[&name]["spec"]["nodeName"].is_string()
                {
                    ended(&mut self.testbed, &name);
                }
            }
            Event::Delete(which) => {
                if let Some(name) = self.pod_named(which) {
                    self.testbed.drop_pod(&name);
                }
            }
            Event::Cordon(which, is_cordoned) => {
                self.change_node(which, "/spec/unschedulable", json!(is_cordoned));
            }
            Event::Resize(which, cpu) => {
                self.change_node(which, "/status/allocatable/cpu", json!(cpu.to_string()));
            }
            Event::AddNode(cpu) => {
                let name = format!("n{}", self.nodes.len());
                let value = node(&name, cpu.into());
                self.set_node(&name, value);
            }
            Event::Budget(allowed) => {
                self.testbed.budget(&budget("kind-1", json!({"kind": "1"}), allowed.into()));
            }
            Event::Relabel(which) => {
                self.change_node(which, "/metadata/labels/zone", json!("z1"));
            }
        }
    }

    /// Carries out operations until none is left. Returns whether there were any.
    fn settle(&mut self) -> bool {
        let mut has_acted = false;
        loop {
            let ops = self.testbed.ops();
            if ops.is_empty() {
                return has_acted;
            }
            for op in ops {
                has_acted |= matches!(op.kind, OpKind::Bind(_) | OpKind::Evict(_));
                self.testbed.complete(&op);
                if let OpKind::Evict(evict) = &op.kind {
                    self.testbed.drop_pod(&evict.pod.name.name);
                }
            }
        }
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..5_u8, 0..3_u8, 0..3_u8, 0..6_u8)
            .prop_map(|(cpu, gpus, priority, kind)| Event::Create { cpu, gpus, priority, kind }),
        2 => (1..4_u8, 1..4_u8, 0..3_u8)
            .prop_map(|(cpu, members, priority)| Event::CreateGang { cpu, members, priority }),
        4 => any::<u8>().prop_map(Event::End),
        2 => any::<u8>().prop_map(Event::Delete),
        2 => (any::<u8>(), any::<bool>()).prop_map(|(which, is)| Event::Cordon(which, is)),
        1 => (any::<u8>(), 1..9_u8).prop_map(|(which, cpu)| Event::Resize(which, cpu)),
        1 => (1..5_u8).prop_map(Event::AddNode),
        1 => (0..3_u8).prop_map(Event::Budget),
        1 => any::<u8>().prop_map(Event::Relabel),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 50, failure_persistence: None, ..ProptestConfig::default() })]

    /// After every change and the longest backoff, waking all entries finds nothing more to do.
    #[test]
    fn no_change_that_helps_is_missed(events in proptest::collection::vec(any_event(), 1..40)) {
        let mut world = World::new();
        for event in events {
            world.apply(event);
            world.settle();
            for _ in 0..4 {
                world.testbed.time(10_000);
                world.settle();
            }
            world.testbed.scheduler.cluster_changed();
            prop_assert!(!world.settle(), "{event:?} should have woken an entry");
        }
    }
}
