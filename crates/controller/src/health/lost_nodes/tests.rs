use serde_json::{Value, json};

use super::*;
use crate::health::facts::{Change, HealthFacts, policy};
use crate::health::plan::{Memory, Plan, plan};

struct Bench {
    facts: Facts,
    memory: Memory,
    now: u64,
}

fn name(number: usize) -> String {
    format!("n{number:02}")
}

/// A node in a rack of four.
fn node(number: usize, taints: &Value) -> NodeFacts {
    let rack = format!("r{}", number / 4);
    let node = json!({
        "metadata": {"name": name(number), "labels": {"topology.octavo.dev/rack": rack, "nvidia.com/gpu.present": "true"}},
        "spec": {"taints": taints},
    });
    NodeFacts::of(&serde_json::from_value(node).unwrap())
}

fn unreachable() -> Value {
    json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}])
}

fn out_of_service(effect: &str) -> Value {
    json!([{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": effect}])
}

fn shut_down() -> Value {
    let (mut taints, Value::Array(lost)) = (out_of_service("NoExecute"), unreachable()) else {
        panic!()
    };
    taints.as_array_mut().unwrap().extend(lost);
    taints
}

impl Bench {
    fn new(nodes: usize) -> Self {
        let mut facts = Facts::default();
        for number in 0..nodes {
            facts.nodes.insert(name(number), node(number, &json!([])));
        }
        Self { facts, memory: Memory::default(), now: 1_800_000_000 }
    }

    fn lose(&mut self, numbers: &[usize], taints: &Value) {
        for number in numbers {
            self.facts.nodes.insert(name(*number), node(*number, taints));
        }
    }

    fn round(&mut self) -> Plan {
        let repair = RepairConfig { after_seconds: 60, scheduler_name: "octavo".to_owned() };
        plan(&self.facts, &mut self.memory, Some(&repair), self.now)
    }

    /// Members of gangs on a node, as its pods were read.
    fn read(&mut self, number: usize, due: usize, leaving_since: Option<u64>) {
        self.memory.lost.members.insert(name(number), LostMembers { due, leaving_since });
    }

    /// Nodes whose members leave now.
    fn evicted(&mut self) -> Vec<String> {
        let lost = self.round().lost.into_iter();
        lost.filter(|(_, lost)| lost.is_evicted).map(|(name, _)| name).collect()
    }
}

#[test]
fn members_leave_lost_nodes_within_the_budget() {
    let mut bench = Bench::new(60);
    bench.lose(&[8, 0], &unreachable());
    let first = bench.now;
    let plan = bench.round();
    let expected =
        LostNode { since: first, after: 60, scheduler: "octavo".to_owned(), is_evicted: false };
    assert_eq!(plan.lost, BTreeMap::from([(name(0), expected.clone()), (name(8), expected)]));
    bench.now += 5;
    bench.lose(&[16, 24], &unreachable());
    for number in [0, 8, 16, 24] {
        bench.read(number, 2, None);
    }
    assert_eq!(bench.evicted(), ["n00", "n08", "n16"], "5% of 60 nodes, lost for longest first");
    // Pods that are being deleted count, also for another controller, and hold up no other node for ever.
    let since = bench.now;
    bench.read(0, 0, Some(since));
    bench.read(8, 0, Some(since));
    bench.now += 599;
    assert_eq!(bench.evicted(), ["n16"]);
    bench.now += 1;
    assert_eq!(bench.evicted(), ["n16", "n24"]);
    bench.lose(&[16], &json!([]));
    assert_eq!(bench.evicted(), ["n24"], "one that is back keeps its pods");
}

#[test]
fn evictions_for_other_reasons_and_an_open_breaker_count() {
    let mut bench = Bench::new(40);
    let spec = json!({"nodeSelector": {"nvidia.com/gpu.present": "true"}});
    let object = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy",
        "metadata": {"name": "p"}, "spec": spec, "status": {"breakerOpenUntil": "2100-01-01T00:00:00Z"},
    });
    let object = serde_json::from_value(object).unwrap();
    bench.facts.apply(Change::Put("p".to_owned(), policy(&object)));
    for number in 0..40 {
        bench.facts.healths.insert(name(number), HealthFacts::default());
    }
    bench.lose(&[0], &unreachable());
    bench.read(0, 1, None);
    assert!(bench.evicted().is_empty(), "many nodes failed at once");
    bench.lose(&[0], &shut_down());
    assert_eq!(bench.evicted(), ["n00"], "its pods have ended");
    let policy = bench.facts.policies.get_mut("p").unwrap();
    policy.status.breaker_open_until = None;
    policy.policy.as_mut().unwrap().budget.evictions_percent = 0;
    bench.memory = Memory::default();
    bench.lose(&[0], &unreachable());
    bench.read(0, 1, None);
    assert!(bench.evicted().is_empty(), "a budget of zero");
}

#[test]
fn nodes_that_are_probably_cut_off_lose_no_pod() {
    for (lost, expected) in [(&[0, 1][..], 1), (&[0, 1, 2], 0)] {
        let mut bench = Bench::new(8);
        bench.lose(lost, &unreachable());
        for number in lost {
            bench.read(*number, 1, None);
        }
        assert_eq!(bench.evicted().len(), expected, "{lost:?}");
    }
    // In different racks, three of 32 nodes are less than a tenth of the cluster.
    let mut apart = Bench::new(32);
    apart.lose(&[0, 8, 16], &unreachable());
    assert_eq!(apart.round().lost.len(), 3);
    // The last nodes of a rack that come back have as much time as if they were the first.
    let mut rack = Bench::new(8);
    rack.lose(&[0, 1, 2, 3], &unreachable());
    rack.round();
    rack.now += 120;
    assert!(rack.round().lost.is_empty());
    rack.lose(&[0, 1], &json!([]));
    let since = rack.round().lost[&name(2)].since;
    assert_eq!(since, rack.now);
}

#[test]
fn nodes_that_are_shut_down_wait_for_nothing_and_are_not_cut_off() {
    let mut bench = Bench::new(8);
    bench.lose(&[0, 1, 2, 3], &shut_down());
    for number in 0..4 {
        bench.read(number, 1, None);
    }
    assert_eq!(bench.evicted().len(), 4);
    assert!(bench.round().lost.values().all(|lost| lost.after == 0));
}

#[test]
fn a_node_that_is_ready_is_not_shut_down() {
    for effect in ["NoExecute", "NoSchedule"] {
        let mut taints = out_of_service(effect);
        assert_eq!(node(0, &taints).loss, None, "it is ready");
        taints.as_array_mut().unwrap().extend(unreachable().as_array().unwrap().clone());
        assert_eq!(node(0, &taints).loss, Some(Loss::OutOfService));
    }
}

#[test]
fn another_program_may_have_this_work() {
    let mut bench = Bench::new(8);
    bench.lose(&[0], &unreachable());
    assert!(plan(&bench.facts, &mut bench.memory, None, bench.now).lost.is_empty());
}

#[test]
fn racks_of_two_zones_with_one_name_are_two() {
    let domains = |zone: &str| {
        let node = json!({
            "metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": zone, "topology.octavo.dev/rack": "r1", "nvidia.com/gpu.clique": "c.1"}},
            "spec": {},
        });
        NodeFacts::of(&serde_json::from_value(node).unwrap()).domains
    };
    let (a, b) = (domains("a"), domains("b"));
    let common = a.iter().filter(|domain| b.contains(domain)).count();
    assert_eq!((a.len(), common), (4, 2), "the cluster and the clique");
}
