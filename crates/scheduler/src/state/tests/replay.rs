use octavo_engine::explain::{self, Explanation};
use octavo_engine::planner::{DecisionInput, Planner};
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::snapshot::Snapshot;
use octavo_engine::solve::NodeSet;
use octavo_kube_io::objects::ObjectName;
use serde_json::json;

use super::fixtures::{Testbed, member, node, plugin_node, pod_group, with};
use crate::state::SchedulerConfig;
use crate::state::reporter::records::RecordedDecision;

/// Recorded decisions for the tests of the simulator. If the format changes,
/// `OCTAVO_WRITE_FIXTURES=1` writes the files again.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/src/whatif/decision");

/// A gang of two on three racks with some GPUs in use.
fn recorded_decision() -> RecordedDecision {
    let config = SchedulerConfig { records: 4, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    for number in 0..6 {
        let rack = json!(format!("r{}", number % 3));
        let node = plugin_node(&format!("n{number}"));
        testbed.node(&with(node, "/metadata/labels/topology.octavo.dev~1rack", rack));
    }
    for number in 0..7 {
        testbed.pod(&super::fixtures::gpu_pod(&format!("p{number}"), 1 + number % 3));
    }
    testbed.settle();
    testbed.object(&pod_group("g", 2, json!({"required": "rack"})));
    for name in ["m0", "m1"] {
        let gpus = json!({"nvidia.com/gpu": "4"});
        testbed.pod(&with(member("g", name, "1"), "/spec/containers/0/resources/limits", gpus));
    }
    assert_eq!(testbed.settle().len(), 2);
    testbed
        .scheduler
        .recorded_group_decision(&ObjectName::new("team", "g"))
        .expect("a record")
        .clone()
}

/// The third member of a gang, which comes when two are running.
fn late_member() -> RecordedDecision {
    let config = SchedulerConfig { records: 4, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    for number in 0..6 {
        let rack = json!(format!("r{}", number % 2));
        let node = plugin_node(&format!("n{number}"));
        testbed.node(&with(node, "/metadata/labels/topology.octavo.dev~1rack", rack));
    }
    testbed.object(&pod_group("g", 2, json!({"required": "rack"})));
    let gpus = json!({"nvidia.com/gpu": "4"});
    let late =
        |name| with(member("g", name, "1"), "/spec/containers/0/resources/limits", gpus.clone());
    testbed.pod(&late("m0"));
    testbed.pod(&late("m1"));
    assert_eq!(testbed.settle().len(), 2);
    // From now on the other rack is fuller.
    for number in 0..2 {
        let filler = super::fixtures::gpu_pod(&format!("p{number}"), 4);
        let node = ["n0", "n1"][usize::from(testbed.pods["m0"]["spec"]["nodeName"] == "n0")];
        testbed.pod(&with(filler, "/spec/nodeSelector", json!({"kubernetes.io/hostname": node})));
    }
    testbed.settle();
    testbed.pod(&late("m2"));
    assert_eq!(testbed.settle().len(), 1);
    testbed
        .scheduler
        .recorded_group_decision(&ObjectName::new("team", "g"))
        .expect("a record")
        .clone()
}

/// Two subgroups whose members have different requests, each in a rack of its own.
fn mixed_subgroups() -> RecordedDecision {
    let config = SchedulerConfig { records: 4, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    for number in 0..6 {
        let rack = json!(format!("r{}", number % 3));
        let node = plugin_node(&format!("n{number}"));
        testbed.node(&with(node, "/metadata/labels/topology.octavo.dev~1rack", rack));
    }
    let of_two = |name| json!({"name": name, "minMember": 2, "topology": {"required": "rack"}});
    let group = pod_group("g", 4, json!({}));
    testbed.object(&with(group, "/spec/subGroups", json!([of_two("a"), of_two("b")])));
    for (name, sub, gpus) in
        [("m0", "a", "8"), ("m1", "a", "2"), ("m2", "b", "8"), ("m3", "b", "4")]
    {
        let pod =
            with(member("g", name, "1"), "/metadata/labels/octavo.dev~1pod-subgroup", json!(sub));
        let limits = json!({"nvidia.com/gpu": gpus});
        testbed.pod(&with(pod, "/spec/containers/0/resources/limits", limits));
    }
    assert_eq!(testbed.settle().len(), 4);
    testbed
        .scheduler
        .recorded_group_decision(&ObjectName::new("team", "g"))
        .expect("a record")
        .clone()
}

/// A pod that a running pod's anti-affinity keeps off one node.
fn kept_away() -> RecordedDecision {
    let config = SchedulerConfig { pod_records: 4, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    for number in 0..3 {
        testbed.node(&plugin_node(&format!("n{number}")));
    }
    let web = json!({"app": "web"});
    let apart = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": web}, "topologyKey": "kubernetes.io/hostname"},
    ]}});
    let guard = with(super::fixtures::gpu_pod("guard", 6), "/spec/affinity", apart);
    let guard = with(guard, "/spec/schedulerName", json!("default-scheduler"));
    testbed.pod(&with(guard, "/spec/nodeName", json!("n1")));
    testbed.pod(&with(super::fixtures::gpu_pod("p", 2), "/metadata/labels", web));
    assert_eq!(testbed.settle().len(), 1);
    testbed
        .scheduler
        .recorded_pod_decision(&ObjectName::new("team", "p"))
        .expect("a record")
        .clone()
}

#[test]
fn recorded_decisions_match_the_fixture_files() {
    let all =
        [("recorded", recorded_decision()), ("late", late_member()), ("kept-away", kept_away())];
    for (name, recorded) in all {
        let file = format!("{FIXTURES}/{name}.json");
        let text = serde_json::to_string_pretty(&recorded).expect("a document") + "\n";
        if std::env::var_os("OCTAVO_WRITE_FIXTURES").is_some() {
            std::fs::write(&file, &text).expect("a file");
        }
        let found = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            found == text,
            "{file} differs from the recorded decision: set OCTAVO_WRITE_FIXTURES=1 to write it"
        );
    }
}

#[test]
fn records_contain_pinned_members_and_forbidden_nodes() {
    let late = late_member();
    assert_eq!((late.pinned.len(), late.forbidden.len()), (2, 0));
    assert!(late.pinned.iter().all(|pinned| pinned.gpus.len() == 4));
    let kept = kept_away();
    assert_eq!((kept.pinned.len(), &*kept.forbidden), (0, &["n1".to_owned()][..]));
}

#[test]
fn pod_records_bounds_the_recorded_pod_decisions() {
    for most in [0, 2] {
        let config =
            SchedulerConfig { pod_records: most, records: 1, ..SchedulerConfig::default() };
        let mut testbed = Testbed::with_config(config);
        testbed.node(&node("a", 8));
        let names: Vec<_> = (0..4).map(|number| format!("p{number}")).collect();
        for name in &names {
            testbed.pod(&super::fixtures::pod(name, "1"));
        }
        assert_eq!(testbed.settle().len(), 4);
        let is_kept = |name: &&String| {
            testbed
                .scheduler
                .recorded_pod_decision(&ObjectName::new("team", name.as_str()))
                .is_some()
        };
        assert_eq!(names.iter().filter(is_kept).count(), most);
    }
}

#[test]
fn a_recorded_decision_is_decided_again_bit_for_bit() {
    assert_replays(&recorded_decision());
}

#[test]
fn the_record_contains_what_disruption_budgets_allow() {
    let config = SchedulerConfig { pod_records: 4, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    testbed.node(&plugin_node("a"));
    for (name, gpus) in [("one", 1), ("two", 2), ("four", 4)] {
        let labels = json!({"app": "web"});
        testbed.pod(&with(super::fixtures::gpu_pod(name, gpus), "/metadata/labels", labels));
    }
    assert_eq!(testbed.settle().len(), 3);
    testbed.budget(&super::fixtures::budget("web", json!({"app": "web"}), 1));
    let high = super::fixtures::gpu_pod("high", 4);
    testbed.pod(&with(high, "/spec/priority", json!(100)));
    assert_eq!(super::fixtures::evicted(&testbed.ops()), ["four"]);
    let record = testbed.scheduler.recorded_pod_decision(&ObjectName::new("team", "high"));
    let record = record.expect("a record").clone();
    assert_eq!(record.cluster.eviction_limits, [("team/web".to_owned(), 1)].into());
    assert_replays(&record);
    let mut closed = record;
    closed.cluster.eviction_limits = [("team/web".to_owned(), 0)].into();
    assert_ne!(replay(&closed), closed.answer, "the allowances decide");
}

#[test]
fn the_record_contains_subgroups_placed_together() {
    let recorded = mixed_subgroups();
    let together: Vec<_> = recorded.gang.groups.iter().map(|group| group.colocation_id).collect();
    assert_eq!(together, [Some(0), Some(0), Some(1), Some(1)]);
    assert_replays(&recorded);
}

pub(super) fn assert_replays(recorded: &RecordedDecision) {
    assert_eq!(replay(recorded), recorded.answer);
}

/// The same decision again.
fn replay(recorded: &RecordedDecision) -> Explanation {
    // Through JSON, like a file.
    let text = serde_json::to_string(&recorded.cluster).expect("a document");
    let cluster: Snapshot = serde_json::from_str(&text).expect("a document");
    let mut world = cluster.world().expect("a world");
    let waiting = Snapshot { waiting: vec![recorded.gang.clone()], ..Snapshot::default() };
    let gangs = waiting.gangs(&world).expect("the gang");
    let others = cluster.gangs(&world).expect("competing gangs");
    let packing = cluster.packing.as_ref().expect("the packing policy's state");
    let mut planner = Planner::restored(packing, &world.cluster).expect("a decider");
    let case = DecisionInput {
        gang: &gangs[0],
        pinned: &[],
        forbidden: &NodeSet::new(),
        preemption_budget: &PreemptionBudget {
            moves: recorded.moves,
            ..PreemptionBudget::evictions_below(gangs[0].profile.priority)
        },
        policy: &recorded.policy,
        waiting: &others,
        weights: &std::collections::BTreeMap::new(),
    };
    let answer = planner.decide(&mut world, &case).expect("a policy");
    explain::answer(&world, &recorded.policy, &gangs[0], &answer)
}

#[test]
fn explanations_contain_the_pending_reason() {
    let mut testbed = Testbed::new();
    testbed.node(&node("a", 1));
    testbed.pod(&super::fixtures::pod("p", "2"));
    testbed.settle();
    let name = ObjectName::new("team", "p");
    let explained = testbed.scheduler.explain_pod(&name).expect("the pod");
    assert_eq!(explained.waiting.map(|one| one.reason).as_deref(), Some("Unschedulable"));
    testbed.node(&node("b", 2));
    testbed.settle();
    let explained = testbed.scheduler.explain_pod(&name).expect("the pod");
    assert_eq!((explained.waiting, explained.node.as_deref()), (None, Some("b")));
    assert!(explained.decision.is_some());
    assert_eq!(testbed.scheduler.explain_pod(&ObjectName::new("team", "nobody")), None);
}
