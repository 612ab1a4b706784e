//! Random changes of a small cluster: none that helps a waiting entry is missed.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixtures::{
    Testbed, budget, ended, gpu_pod, member, node, plugin_node, pod, pod_group, with,
};
use crate::bind::OpKind;

/// The kind of pods that have a day to leave. Others may borrow what is kept meanwhile.
const SLOW: u8 = 6;

/// An event.
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

/// A testbed that carries out all operations: victims leave at once, except for slow ones.
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
        if kind == SLOW {
            pod["spec"]["terminationGracePeriodSeconds"] = json!(100_000);
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
                if let OpKind::Evict(evict) = &op.kind
                    && self.testbed.pods[&*evict.pod.name.name]["metadata"]["labels"]["kind"]
                        != json!(SLOW.to_string())
                {
                    self.testbed.drop_pod(&evict.pod.name.name);
                }
            }
        }
    }
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1..5_u8, 0..3_u8, 0..3_u8, 0..=SLOW)
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
            world.testbed.scheduler.cache.cluster_changed();
            prop_assert!(!world.settle(), "{event:?} should have woken an entry");
        }
    }
}
