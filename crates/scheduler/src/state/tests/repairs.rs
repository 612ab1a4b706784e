use serde_json::{Value, json};

use super::claims::{claim, claiming, class, slice};
use super::fixtures::{Testbed, node, pod_group, with};
use crate::state::SchedulerConfig;
use crate::status::StatusUpdate;

/// Nodes of a rack with a GPU each, of which a default policy keeps some spare.
pub(super) fn testbed(nodes: &[&str], spares: &Value) -> Testbed {
    configured(SchedulerConfig::default(), nodes, spares)
}

fn configured(config: SchedulerConfig, nodes: &[&str], spares: &Value) -> Testbed {
    let mut testbed = Testbed::with_config(config);
    testbed.class(&class());
    for name in nodes {
        let rack = json!("r1");
        testbed.node(&with(node(name, 64), "/metadata/labels/topology.octavo.dev~1rack", rack));
        testbed.slice(&slice(name, 1));
    }
    testbed.object(&json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "PlacementPolicy",
        "metadata": {"name": "spares", "uid": "uid-spares", "generation": 1},
        "spec": {
            "isDefault": true, "order": [{"unit": "podsDisturbed"}, {"unit": "hops"}],
            "constraints": {"spares": [spares]},
        },
    }));
    testbed
}

pub(super) fn spare_nodes(number: u32) -> Value {
    json!({"level": "rack", "nodes": number})
}

pub(super) fn member(testbed: &mut Testbed, index: u32, suffix: &str, priority: i32) {
    let name = format!("m{index}{suffix}");
    testbed.claim(&claim(&format!("{name}-gpu"), &name));
    let labels = json!({
        "octavo.dev/pod-group": "g",
        "batch.kubernetes.io/job-completion-index": index.to_string(),
    });
    let pod = with(claiming(&name), "/spec/priority", json!(priority));
    testbed.pod(&with(pod, "/metadata/labels", labels));
}

/// A gang that runs in full.
pub(super) fn running(testbed: &mut Testbed, min: u32, members: u32, priority: i32) {
    testbed.object(&pod_group("g", min, json!({})));
    for index in 0..members {
        member(testbed, index, "", priority);
    }
    assert_eq!(testbed.settle().len(), members as usize);
    assert_eq!(testbed.settle(), []);
}

pub(super) fn delete(testbed: &mut Testbed, name: &str) {
    testbed.drop_pod(name);
    testbed.drop_claim(&format!("{name}-gpu"));
}

/// The GPU of a member is fenced, and the member leaves.
fn fails(testbed: &mut Testbed, name: &str) {
    let at = testbed.pods[name]["spec"]["nodeName"].as_str().expect("a node").to_owned();
    let taint = json!([{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}]);
    let fenced = with(slice(&at, 1), "/spec/devices/0/taints", taint);
    testbed.slice(&with(fenced, "/spec/pool/generation", json!(2)));
    delete(testbed, name);
}

/// Names of the pods that are bound within two seconds.
pub(super) fn placed(testbed: &mut Testbed) -> Vec<String> {
    testbed.time(2_000);
    testbed.settle().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_gang_that_grows_gets_no_spare_node() {
    let mut testbed = testbed(&["a", "b", "c"], &spare_nodes(1));
    running(&mut testbed, 2, 2, 0);
    testbed.object(&with(pod_group("g", 3, json!({})), "/metadata/generation", json!(2)));
    member(&mut testbed, 2, "", 0);
    assert_eq!(placed(&mut testbed), [""; 0]);
    // Nor once a member fails: it asks for more than it had.
    fails(&mut testbed, "m0");
    member(&mut testbed, 0, "-again", 0);
    assert_eq!(placed(&mut testbed), [""; 0]);
    testbed.object(&with(pod_group("g", 2, json!({})), "/metadata/generation", json!(3)));
    assert_eq!(placed(&mut testbed).len(), 1);
}

#[test]
fn a_gang_that_never_ran_gets_no_spare_node() {
    let mut testbed = testbed(&["a", "b"], &spare_nodes(1));
    testbed.object(&pod_group("g", 2, json!({})));
    member(&mut testbed, 0, "", 0);
    let result =
        json!({"request": "gpu", "driver": "gpu.nvidia.com", "pool": "a", "device": "gpu-0"});
    let claim = with(
        testbed.claims["m0-gpu"].clone(),
        "/status",
        json!({
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "m0", "uid": "uid-m0"}],
        }),
    );
    testbed.claim(&claim);
    let bound = with(testbed.pods["m0"].clone(), "/spec/nodeName", json!("a"));
    testbed.pod(&with(bound, "/status/phase", json!("Running")));
    member(&mut testbed, 1, "", 0);
    assert_eq!(placed(&mut testbed), [""; 0]);
}

#[test]
fn only_members_up_to_the_minimum_get_spare_nodes() {
    let mut testbed = testbed(&["a", "b", "c", "d", "e"], &spare_nodes(2));
    running(&mut testbed, 2, 3, 0);
    fails(&mut testbed, "m0");
    fails(&mut testbed, "m1");
    member(&mut testbed, 0, "-again", 0);
    member(&mut testbed, 1, "-again", 0);
    assert_eq!(placed(&mut testbed), ["m0-again"]);
    assert_eq!(placed(&mut testbed), [""; 0]);
    // A node more, which is not to be spare: the other one comes back, too.
    for name in ["f", "g"] {
        let rack = json!("r1");
        testbed.node(&with(node(name, 64), "/metadata/labels/topology.octavo.dev~1rack", rack));
        testbed.slice(&slice(name, 1));
    }
    assert_eq!(placed(&mut testbed), ["m1-again"]);
}

fn notes(testbed: &Testbed) -> Vec<&str> {
    let notes = testbed.reports.iter().filter_map(|report| match report {
        StatusUpdate::PodNotRepaired { status_text, .. } => Some(&*status_text.message),
        _ => None,
    });
    notes.collect()
}

#[test]
fn a_gang_with_too_many_faults_waits_as_a_new_one() {
    let config = SchedulerConfig {
        max_repairs: 1,
        repair_window_seconds: 3_600,
        ..SchedulerConfig::default()
    };
    let nodes = ["a", "b", "c", "d", "e", "f"];
    let mut testbed = configured(config, &nodes, &spare_nodes(2));
    running(&mut testbed, 2, 2, 0);
    fails(&mut testbed, "m0");
    member(&mut testbed, 0, "-again", 0);
    assert_eq!(placed(&mut testbed), ["m0-again"]);
    testbed.after(60_000);
    // Both members leave by one fault.
    fails(&mut testbed, "m0-again");
    fails(&mut testbed, "m1");
    for index in 0..2 {
        member(&mut testbed, index, "-third", 0);
    }
    assert_eq!(placed(&mut testbed), [""; 0]);
    assert_eq!(notes(&testbed).len(), 1, "{:?}", notes(&testbed));
    let note = "was repaired 1 times within 3600 s";
    assert!(notes(&testbed)[0].contains(note), "{:?}", notes(&testbed));
    // Once the first fault is long ago, it is repaired again.
    testbed.time(3_541_000);
    assert_eq!(placed(&mut testbed), ["m0-third", "m1-third"]);
}

#[test]
fn a_failed_pod_is_one_fault() {
    let config = SchedulerConfig { max_repairs: 1, ..SchedulerConfig::default() };
    let mut testbed = configured(config, &["a", "b", "c"], &spare_nodes(1));
    running(&mut testbed, 2, 2, 0);
    // A failed pod stays for as long as its Job, and is listed again and again.
    let failed = with(testbed.pods["m0"].clone(), "/status/phase", json!("Failed"));
    for _ in 0..3 {
        testbed.pod(&failed);
        testbed.after(60_000);
    }
    member(&mut testbed, 0, "-again", 0);
    assert_eq!(placed(&mut testbed), ["m0-again"]);
    assert_eq!(notes(&testbed), [""; 0]);
}

#[test]
fn a_gang_that_comes_back_late_after_a_fault_is_repaired() {
    for has_failed in [true, false] {
        let mut testbed = testbed(&["a", "b", "c"], &spare_nodes(1));
        running(&mut testbed, 2, 2, 0);
        if has_failed {
            fails(&mut testbed, "m0");
        } else {
            delete(&mut testbed, "m0");
        }
        delete(&mut testbed, "m1");
        testbed.after(600_000);
        if !has_failed {
            let gone = with(node("a", 64), "/spec/unschedulable", json!(true));
            testbed.node(&gone);
        }
        for index in 0..2 {
            member(&mut testbed, index, "-again", 0);
        }
        let wanted: &[&str] = if has_failed { &["m0-again", "m1-again"] } else { &[] };
        assert_eq!(placed(&mut testbed), wanted);
    }
}

#[test]
fn a_repair_of_low_priority_takes_no_node_that_is_lent_below_it() {
    let lent = json!({"level": "rack", "nodes": 1, "lendBelowPriority": 0});
    for (priority, count) in [(-1, 0), (0, 1)] {
        let mut testbed = testbed(&["a", "b", "c"], &lent);
        let group = with(pod_group("g", 2, json!({})), "/spec/preemptible", json!(false));
        testbed.object(&group);
        for index in 0..2 {
            member(&mut testbed, index, "", priority);
        }
        assert_eq!(testbed.settle().len(), 2);
        assert_eq!(testbed.settle(), []);
        fails(&mut testbed, "m0");
        member(&mut testbed, 0, "-again", priority);
        assert_eq!(placed(&mut testbed).len(), count, "{priority}");
    }
}
