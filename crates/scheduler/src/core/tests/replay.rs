use octavo_engine::decider::{Case, Decider};
use octavo_engine::disturb::Allowance;
use octavo_engine::explain;
use octavo_engine::snapshot::Snapshot;
use octavo_engine::solve::NodeSet;
use octavo_kube_io::objects::ObjectName;
use serde_json::json;

use super::kit::{Bed, member, node, plugin_node, pod_group, with};
use crate::core::CoreConfig;
use crate::core::questions::Recorded;

/// What the simulator's tests read: a decision as this scheduler records it. Where the form changes, this
/// test writes the file anew with `OCTAVO_WRITE_FIXTURES=1`.
const FIXTURE: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/src/whatif/decision/recorded.json");

/// A gang of two on three racks, in which some GPUs are taken.
fn recorded_decision() -> Recorded {
    let config = CoreConfig { records: 4, ..CoreConfig::default() };
    let mut bed = Bed::with_config(config);
    for number in 0..6 {
        let rack = json!(format!("r{}", number % 3));
        let node = plugin_node(&format!("n{number}"));
        bed.node(&with(node, "/metadata/labels/topology.octavo.dev~1rack", rack));
    }
    for number in 0..7 {
        bed.pod(&super::kit::gpu_pod(&format!("p{number}"), 1 + number % 3));
    }
    bed.settle();
    bed.object(&pod_group("g", 2, json!({"required": "rack"})));
    for name in ["m0", "m1"] {
        let gpus = json!({"nvidia.com/gpu": "4"});
        bed.pod(&with(member("g", name, "1"), "/spec/containers/0/resources/limits", gpus));
    }
    assert_eq!(bed.settle().len(), 2);
    bed.core.recorded(&ObjectName::new("team", "g")).expect("a record").clone()
}

#[test]
fn the_decision_in_the_repository_is_the_one_that_is_recorded() {
    let text = serde_json::to_string_pretty(&recorded_decision()).expect("a document") + "\n";
    if std::env::var_os("OCTAVO_WRITE_FIXTURES").is_some() {
        std::fs::write(FIXTURE, &text).expect("a file");
    }
    let found = std::fs::read_to_string(FIXTURE).unwrap_or_default();
    assert!(found == text, "{FIXTURE} is not what is recorded: OCTAVO_WRITE_FIXTURES=1 writes it");
}

#[test]
fn a_recorded_decision_is_decided_again_bit_for_bit() {
    let recorded = recorded_decision();
    // As a file would have it.
    let text = serde_json::to_string(&recorded.cluster).expect("a document");
    let cluster: Snapshot = serde_json::from_str(&text).expect("a document");
    let mut world = cluster.world().expect("a world");
    let waiting = Snapshot { waiting: vec![recorded.gang.clone()], ..Snapshot::default() };
    let gangs = waiting.gangs(&world).expect("the gang");
    let packing = cluster.packing.as_ref().expect("what was learned");
    let mut decider = Decider::restored(packing, &world.cluster).expect("a decider");
    let case = Case {
        gang: &gangs[0],
        pinned: &[],
        forbidden: &NodeSet::new(),
        allowance: &Allowance { moves: recorded.moves, ..Allowance::evictions_below(0) },
        policy: &recorded.policy,
        waiting: &[],
        weights: &std::collections::BTreeMap::new(),
    };
    let answer = decider.decide(&mut world, &case).expect("a policy");
    let again = explain::answer(&world, &recorded.policy, &gangs[0], &answer);
    assert_eq!(again, recorded.answer);
}

#[test]
fn explanations_say_what_waits_and_why() {
    let mut bed = Bed::new();
    bed.node(&node("a", 1));
    bed.pod(&super::kit::pod("p", "2"));
    bed.settle();
    let name = ObjectName::new("team", "p");
    let explained = bed.core.explain_pod(&name).expect("the pod");
    assert_eq!(explained.waiting.map(|one| one.reason).as_deref(), Some("Unschedulable"));
    bed.node(&node("b", 2));
    bed.settle();
    let explained = bed.core.explain_pod(&name).expect("the pod");
    assert_eq!((explained.waiting, explained.node.as_deref()), (None, Some("b")));
    assert!(explained.decision.is_some());
    assert_eq!(bed.core.explain_pod(&ObjectName::new("team", "nobody")), None);
}
