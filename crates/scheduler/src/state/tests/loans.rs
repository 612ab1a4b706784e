//! Room that is kept for nominated pods, and used by others while a victim takes its time.

use serde_json::json;

use super::claims::{class, slice};
use super::fixtures::{
    Testbed, budget, ended, evicted, gpu_pod, member, node, plugin_node, pod, pod_group, with,
};
use crate::bind::{FailureKind, OpKind, WriteOp};
use crate::state::SchedulerConfig;
use crate::status::StatusUpdate;

pub(super) const GRACE: &str = "/spec/terminationGracePeriodSeconds";
pub(super) const HOUR_MS: u64 = 3_600_000;

/// Adds a node of eight GPUs.
pub(super) type AddNode = fn(&mut Testbed, &str);

/// Nodes with a device plugin, and nodes whose driver publishes devices.
pub(super) const NODES: [AddNode; 2] = [
    |testbed, name| testbed.node(&plugin_node(name)),
    |testbed, name| {
        testbed.class(&class());
        testbed.node(&node(name, 64));
        testbed.slice(&slice(name, 8));
    },
];

/// Eight GPUs whose pods were evicted for a gang. All have left but one, which has an hour.
pub(super) fn lending(add_node: AddNode) -> Testbed {
    let mut testbed = Testbed::new();
    fill(&mut testbed, add_node);
    preempt(&mut testbed);
    for number in 1..8 {
        testbed.drop_pod(&format!("v{number}"));
    }
    assert_eq!(testbed.settle(), [], "the gang waits for all of them");
    testbed
}

fn fill(testbed: &mut Testbed, add_node: AddNode) {
    add_node(testbed, "a");
    testbed.pod(&with(gpu_pod("v0", 1), GRACE, json!(3600)));
    for number in 1..8 {
        testbed.pod(&gpu_pod(&format!("v{number}"), 1));
    }
    assert_eq!(testbed.settle().len(), 8);
}

fn preempt(testbed: &mut Testbed) {
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        let gpus = gpu_pod(name, 4)["spec"].clone();
        let gang = with(member("g", name, "4"), "/spec", gpus);
        let gang = with(gang, "/spec/containers/0/resources/requests/cpu", json!("4"));
        testbed.pod(&with(gang, "/spec/priority", json!(100)));
    }
    let ops = testbed.ops();
    assert_eq!(evicted(&ops).len(), 8);
    carry_out(testbed, &ops);
}

pub(super) fn carry_out(testbed: &mut Testbed, ops: &[WriteOp]) {
    for op in ops {
        testbed.complete(op);
    }
}

pub(super) fn on_a(names: &[&str]) -> Vec<(String, String)> {
    names.iter().map(|name| ((*name).to_owned(), "a".to_owned())).collect()
}

pub(super) fn is_leaving(testbed: &Testbed, name: &str) -> bool {
    testbed.pods[name]["metadata"].get("deletionTimestamp").is_some()
}

pub(super) fn explained(testbed: &Testbed, name: &str) -> Option<String> {
    let name = octavo_kube_io::objects::ObjectName::new("team", name);
    testbed.scheduler.explain_pod(&name).expect("the pod").loan
}

#[test]
fn a_freed_gpu_serves_a_pod_that_yields_when_the_last_victim_has_left() {
    for add_node in NODES {
        let mut testbed = lending(add_node);
        testbed.reports.clear();
        testbed.pod(&gpu_pod("low", 1));
        assert_eq!(testbed.settle(), on_a(&["low"]));
        testbed.ops();
        let loan = explained(&testbed, "low").expect("a loan");
        assert!(loan.contains("kept for PodGroup team/g") && loan.contains("evicted"), "{loan}");
        assert!(testbed.reports.iter().any(|report| {
            matches!(report, StatusUpdate::PodBound { loan: Some(note), .. } if *note == loan)
        }));
        assert_eq!(evicted(&testbed.after(HOUR_MS - 1000)), Vec::<String>::new());
        testbed.drop_pod("v0");
        let ops = testbed.ops();
        assert_eq!(evicted(&ops), ["low"]);
        carry_out(&mut testbed, &ops);
        assert_eq!(testbed.settle(), [], "the borrower still runs");
        testbed.pod(&gpu_pod("late", 1));
        assert_eq!(testbed.settle(), [], "nothing is lent any more");
        testbed.drop_pod("low");
        assert_eq!(testbed.settle(), on_a(&["m0", "m1"]));
    }
}

#[test]
fn a_pod_that_waits_gets_the_first_gpu_that_is_freed() {
    let mut testbed = Testbed::new();
    fill(&mut testbed, NODES[0]);
    preempt(&mut testbed);
    for name in ["p", "q"] {
        testbed.pod(&gpu_pod(name, 1));
    }
    assert_eq!(testbed.settle(), []);
    testbed.drop_pod("v3");
    assert_eq!(testbed.settle(), on_a(&["p"]));
    testbed.drop_pod("v4");
    assert_eq!(testbed.settle(), on_a(&["q"]));
    ended(&mut testbed, "p");
    testbed.pod(&gpu_pod("r", 1));
    assert_eq!(testbed.settle(), on_a(&["r"]));
}

#[test]
fn a_pod_that_cannot_yield_borrows_nothing() {
    let labelled = with(gpu_pod("p", 1), "/metadata/labels", json!({"app": "p"}));
    for (what, pod) in [
        ("equal priority", with(gpu_pod("p", 1), "/spec/priority", json!(100))),
        ("a long grace period", with(gpu_pod("p", 1), GRACE, json!(31))),
        ("a closed budget", labelled),
        ("too many GPUs", gpu_pod("p", 8)),
    ] {
        let mut testbed = lending(NODES[0]);
        testbed.budget(&budget("b", json!({"app": "p"}), 0));
        testbed.pod(&pod);
        assert_eq!(testbed.settle(), [], "{what}");
        assert_eq!(evicted(&testbed.after(10_000)), Vec::<String>::new(), "{what}");
        testbed.drop_pod("v0");
        assert_eq!(testbed.settle(), on_a(&["m0", "m1"]), "{what}");
    }
}

#[test]
fn a_gang_borrows_nothing() {
    for add_node in NODES {
        let mut testbed = lending(add_node);
        testbed.object(&pod_group("h", 1, json!({})));
        testbed.pod(&with(
            gpu_pod("p", 1),
            "/metadata/labels",
            json!({"octavo.dev/pod-group": "h"}),
        ));
        assert_eq!(testbed.settle(), []);
    }
}

#[test]
fn others_wait_for_what_a_borrower_takes_beyond_what_is_kept() {
    let cpu = "/spec/containers/0/resources/requests/cpu";
    for add_node in NODES {
        // Eight of 64 cores are kept for the gang. Its last victim uses one.
        let mut testbed = lending(add_node);
        testbed.pod(&with(gpu_pod("p", 1), cpu, json!("7")));
        assert_eq!(testbed.settle(), on_a(&["p"]));
        testbed.pod(&pod("plain", "56"));
        assert_eq!(testbed.settle(), on_a(&["plain"]), "as many cores as without the loan");

        let mut testbed = lending(add_node);
        testbed.pod(&with(gpu_pod("p", 1), cpu, json!("9")));
        testbed.pod(&with(gpu_pod("q", 1), cpu, json!("3")));
        assert_eq!(testbed.settle(), on_a(&["p", "q"]));
        // The gang is decided again after a change, without a better place.
        testbed.node(&node("small", 1));
        testbed.after(5000);
        testbed.pod(&pod("plain", "52"));
        assert_eq!(testbed.settle(), [], "two of the nine and all three are beyond what is kept");
        testbed.after(0);
        let (_, message) = testbed.reason("plain").expect("a reason");
        assert!(message.contains("until pods that are leaving have left"), "{message}");
        testbed.pod(&pod("small", "51"));
        assert_eq!(testbed.settle(), on_a(&["small"]));
        testbed.pod(&with(gpu_pod("r", 1), cpu, json!("1")));
        assert_eq!(testbed.settle(), [], "no core is free");
    }
}

#[test]
fn nothing_is_lent_when_the_last_victim_must_leave_soon() {
    for add_node in NODES {
        let mut testbed = lending(add_node);
        testbed.time(HOUR_MS - 59_000);
        testbed.pod(&gpu_pod("p", 1));
        assert_eq!(testbed.settle(), []);
    }
}

#[test]
fn borrowers_stay_as_ordinary_pods_if_the_gang_is_deleted() {
    for add_node in NODES {
        let mut testbed = lending(add_node);
        testbed.pod(&gpu_pod("low", 1));
        assert_eq!(testbed.settle(), on_a(&["low"]));
        for name in ["m0", "m1"] {
            testbed.drop_pod(name);
        }
        testbed.drop_pod("v0");
        assert_eq!(evicted(&testbed.after(1000)), Vec::<String>::new());
        assert_eq!(explained(&testbed, "low"), None);
        testbed.pod(&gpu_pod("eight", 8));
        assert_eq!(testbed.settle(), [], "the borrower counts");
        testbed.pod(&gpu_pod("seven", 7));
        assert_eq!(testbed.settle(), on_a(&["seven"]));
        let high = with(gpu_pod("high", 1), "/spec/priority", json!(100));
        testbed.pod(&high);
        assert_eq!(evicted(&testbed.ops()), ["low"], "it can be preempted again");
    }
}

#[test]
fn borrowers_stay_if_the_last_victim_never_leaves() {
    for add_node in NODES {
        let mut testbed = lending(add_node);
        testbed.pod(&gpu_pod("low", 1));
        assert_eq!(testbed.settle(), on_a(&["low"]));
        let ops = testbed.after(HOUR_MS + 30_000);
        assert_eq!(evicted(&ops), Vec::<String>::new());
        testbed.pod(&gpu_pod("six", 6));
        assert_eq!(testbed.settle(), on_a(&["six"]), "the nomination is over");
        assert_eq!(explained(&testbed, "low"), None);
    }
}

#[test]
fn a_restart_meanwhile_loses_nothing() {
    let mut before = lending(NODES[0]);
    before.pod(&gpu_pod("low", 1));
    assert_eq!(before.settle(), on_a(&["low"]));
    let mut after = Testbed::with_config(SchedulerConfig::default());
    after.node(&plugin_node("a"));
    after.object(&pod_group("g", 2, json!({})));
    for pod in before.pods.values() {
        after.pod(pod);
    }
    assert_eq!(after.settle(), []);
    for name in ["low", "v0"] {
        assert!(is_leaving(&after, name));
        after.drop_pod(name);
    }
    assert_eq!(after.settle(), on_a(&["m0", "m1"]));
}

#[test]
fn a_borrower_whose_bind_fails_is_a_pending_pod_again() {
    for add_node in NODES {
        let mut testbed = lending(add_node);
        testbed.pod(&gpu_pod("low", 1));
        let ops = testbed.ops();
        let bind = ops.iter().find(|op| matches!(op.kind, OpKind::Bind(_))).expect("a bind");
        testbed.fail(bind, FailureKind::Conflict);
        assert_eq!(explained(&testbed, "low"), None);
        testbed.drop_pod("v0");
        assert_eq!(testbed.settle(), on_a(&["m0", "m1"]), "nothing is in the way");
        add_node(&mut testbed, "b");
        testbed.time(10_000);
        assert_eq!(testbed.settle(), [("low".to_owned(), "b".to_owned())]);
    }
}

#[test]
fn a_borrower_whose_bind_is_in_flight_is_evicted_once_it_is_bound() {
    for add_node in NODES {
        let mut testbed = lending(add_node);
        testbed.pod(&gpu_pod("low", 1));
        let binds = testbed.ops();
        testbed.drop_pod("v0");
        assert_eq!(testbed.ops(), [], "its bind may fail");
        carry_out(&mut testbed, &binds);
        let ops = testbed.after(100);
        assert_eq!(evicted(&ops), ["low"]);
        carry_out(&mut testbed, &ops);
        testbed.drop_pod("low");
        assert_eq!(testbed.settle(), on_a(&["m0", "m1"]));
    }
}

#[test]
fn a_gang_that_finds_another_place_leaves_its_borrowers_in_peace() {
    for add_node in NODES {
        let mut testbed = lending(add_node);
        testbed.pod(&gpu_pod("low", 1));
        assert_eq!(testbed.settle(), on_a(&["low"]));
        add_node(&mut testbed, "b");
        let ops = testbed.after(1000);
        assert_eq!(ops.iter().filter(|op| matches!(op.kind, OpKind::Bind(_))).count(), 2);
        carry_out(&mut testbed, &ops);
        testbed.drop_pod("v0");
        assert_eq!(evicted(&testbed.after(1000)), Vec::<String>::new());
        testbed.pod(&gpu_pod("eight", 8));
        assert_eq!(testbed.settle(), [], "the borrower counts");
    }
}
