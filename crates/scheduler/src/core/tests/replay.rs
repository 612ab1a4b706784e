use octavo_engine::explain;
use octavo_engine::planner::{DecisionInput, Planner};
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::snapshot::Snapshot;
use octavo_engine::solve::NodeSet;
use octavo_kube_io::objects::ObjectName;
use serde_json::json;

use super::kit::{Bed, member, node, plugin_node, pod_group, with};
use crate::core::CoreConfig;
use crate::core::records::Recorded;

/// What the simulator's tests read: decisions as this scheduler records them. Where the form changes, the
/// test writes the files anew with `OCTAVO_WRITE_FIXTURES=1`.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/src/whatif/decision");

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

/// The third member of a gang, that comes when two run.
fn late_member() -> Recorded {
    let config = CoreConfig { records: 4, ..CoreConfig::default() };
    let mut bed = Bed::with_config(config);
    for number in 0..6 {
        let rack = json!(format!("r{}", number % 2));
        let node = plugin_node(&format!("n{number}"));
        bed.node(&with(node, "/metadata/labels/topology.octavo.dev~1rack", rack));
    }
    bed.object(&pod_group("g", 2, json!({"required": "rack"})));
    let gpus = json!({"nvidia.com/gpu": "4"});
    let late =
        |name| with(member("g", name, "1"), "/spec/containers/0/resources/limits", gpus.clone());
    bed.pod(&late("m0"));
    bed.pod(&late("m1"));
    assert_eq!(bed.settle().len(), 2);
    // The other rack is the fuller one by now.
    for number in 0..2 {
        let filler = super::kit::gpu_pod(&format!("p{number}"), 4);
        let node = ["n0", "n1"][usize::from(bed.pods["m0"]["spec"]["nodeName"] == "n0")];
        bed.pod(&with(filler, "/spec/nodeSelector", json!({"kubernetes.io/hostname": node})));
    }
    bed.settle();
    bed.pod(&late("m2"));
    assert_eq!(bed.settle().len(), 1);
    bed.core.recorded(&ObjectName::new("team", "g")).expect("a record").clone()
}

/// Two subgroups of members that ask for different things, each in a rack of its own.
fn mixed_subgroups() -> Recorded {
    let config = CoreConfig { records: 4, ..CoreConfig::default() };
    let mut bed = Bed::with_config(config);
    for number in 0..6 {
        let rack = json!(format!("r{}", number % 3));
        let node = plugin_node(&format!("n{number}"));
        bed.node(&with(node, "/metadata/labels/topology.octavo.dev~1rack", rack));
    }
    let of_two = |name| json!({"name": name, "minMember": 2, "topology": {"required": "rack"}});
    let group = pod_group("g", 4, json!({}));
    bed.object(&with(group, "/spec/subGroups", json!([of_two("a"), of_two("b")])));
    for (name, sub, gpus) in
        [("m0", "a", "8"), ("m1", "a", "2"), ("m2", "b", "8"), ("m3", "b", "4")]
    {
        let pod =
            with(member("g", name, "1"), "/metadata/labels/octavo.dev~1pod-subgroup", json!(sub));
        let limits = json!({"nvidia.com/gpu": gpus});
        bed.pod(&with(pod, "/spec/containers/0/resources/limits", limits));
    }
    assert_eq!(bed.settle().len(), 4);
    bed.core.recorded(&ObjectName::new("team", "g")).expect("a record").clone()
}

/// A pod that somebody who runs keeps off the node where it would go.
fn kept_away() -> Recorded {
    let config = CoreConfig { pod_records: 4, ..CoreConfig::default() };
    let mut bed = Bed::with_config(config);
    for number in 0..3 {
        bed.node(&plugin_node(&format!("n{number}")));
    }
    let web = json!({"app": "web"});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": web}, "topologyKey": "kubernetes.io/hostname"},
    ]}});
    let guard = with(super::kit::gpu_pod("guard", 6), "/spec/affinity", apart);
    let guard = with(guard, "/spec/schedulerName", json!("default-scheduler"));
    bed.pod(&with(guard, "/spec/nodeName", json!("n1")));
    bed.pod(&with(super::kit::gpu_pod("p", 2), "/metadata/labels", web));
    assert_eq!(bed.settle().len(), 1);
    bed.core.recorded_pod(&ObjectName::new("team", "p")).expect("a record").clone()
}

#[test]
fn the_decisions_in_the_repository_are_those_that_are_recorded() {
    let all =
        [("recorded", recorded_decision()), ("late", late_member()), ("kept-away", kept_away())];
    for (name, recorded) in all {
        let file = format!("{FIXTURES}/{name}.json");
        let text = serde_json::to_string_pretty(&recorded).expect("a document") + "\n";
        if std::env::var_os("OCTAVO_WRITE_FIXTURES").is_some() {
            std::fs::write(&file, &text).expect("a file");
        }
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(found == text, "{file} is not what is recorded: OCTAVO_WRITE_FIXTURES=1 writes it");
    }
}

#[test]
fn members_that_have_their_places_and_nodes_that_are_left_out_are_in_the_record() {
    let late = late_member();
    assert_eq!((late.pinned.len(), late.forbidden.len()), (2, 0));
    assert!(late.pinned.iter().all(|pinned| pinned.gpus.len() == 4));
    let kept = kept_away();
    assert_eq!((kept.pinned.len(), &*kept.forbidden), (0, &["n1".to_owned()][..]));
}

#[test]
fn as_many_decisions_on_pods_are_kept_as_is_said_and_none_by_default() {
    for most in [0, 2] {
        let config = CoreConfig { pod_records: most, records: 1, ..CoreConfig::default() };
        let mut bed = Bed::with_config(config);
        bed.node(&node("a", 8));
        let names: Vec<_> = (0..4).map(|number| format!("p{number}")).collect();
        for name in &names {
            bed.pod(&super::kit::pod(name, "1"));
        }
        assert_eq!(bed.settle().len(), 4);
        let is_kept = |name: &&String| {
            bed.core.recorded_pod(&ObjectName::new("team", name.as_str())).is_some()
        };
        assert_eq!(names.iter().filter(is_kept).count(), most);
    }
}

#[test]
fn a_recorded_decision_is_decided_again_bit_for_bit() {
    is_decided_again(&recorded_decision());
}

#[test]
fn who_must_lie_together_in_a_subgroup_is_in_the_record() {
    let recorded = mixed_subgroups();
    let together: Vec<_> = recorded.gang.groups.iter().map(|group| group.colocation_id).collect();
    assert_eq!(together, [Some(0), Some(0), Some(1), Some(1)]);
    is_decided_again(&recorded);
}

fn is_decided_again(recorded: &Recorded) {
    // As a file would have it.
    let text = serde_json::to_string(&recorded.cluster).expect("a document");
    let cluster: Snapshot = serde_json::from_str(&text).expect("a document");
    let mut world = cluster.world().expect("a world");
    let waiting = Snapshot { waiting: vec![recorded.gang.clone()], ..Snapshot::default() };
    let gangs = waiting.gangs(&world).expect("the gang");
    let others = cluster.gangs(&world).expect("others that wait");
    let packing = cluster.packing.as_ref().expect("what was learned");
    let mut planner = Planner::restored(packing, &world.cluster).expect("a decider");
    let case = DecisionInput {
        gang: &gangs[0],
        pinned: &[],
        forbidden: &NodeSet::new(),
        preemption_budget: &PreemptionBudget {
            moves: recorded.moves,
            ..PreemptionBudget::evictions_below(0)
        },
        policy: &recorded.policy,
        waiting: &others,
        weights: &std::collections::BTreeMap::new(),
    };
    let answer = planner.decide(&mut world, &case).expect("a policy");
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
