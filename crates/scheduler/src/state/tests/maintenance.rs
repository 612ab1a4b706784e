use octavo_kube_io::objects::{Change, Delta, ObjectName, WatchedObject};
use serde_json::{Value, json};

use super::fixtures::{Testbed, evicted, gpu_pod, plugin_node, pod, pod_group, with};
use super::replay::assert_replays;
use crate::state::SchedulerConfig;

/// 2026-01-05T12:00:00Z.
const NOON: u64 = 1_767_614_400;
const HOUR: u64 = 3_600;
const REASON: &str = "node a is in maintenance from 2026-01-05T12:00:00Z on, and the pod neither ends nor yields before";

/// Work on the node `a` from noon on, for an hour.
fn work() -> Value {
    json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "Maintenance",
        "metadata": {"name": "firmware", "uid": "uid-firmware", "generation": 1},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": "a"},
            "startTime": "2026-01-05T12:00:00Z", "endTime": "2026-01-05T13:00:00Z",
        },
    })
}

fn drop_work(testbed: &mut Testbed) {
    let object = WatchedObject::from_value(work()).expect("an object");
    testbed.scheduler.apply(&Change::Object(Delta::Delete(object.into())));
}

/// A node with work, an hour before it begins.
fn testbed() -> Testbed {
    let config = SchedulerConfig { pod_records: 16, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    testbed.scheduler.set_wall_clock(NOON - HOUR);
    testbed.node(&plugin_node("a"));
    testbed.object(&work());
    testbed
}

fn on(name: &str, node: &str) -> (String, String) {
    (name.to_owned(), node.to_owned())
}

#[test]
fn before_work_a_node_takes_only_pods_that_end_or_yield_in_time() {
    let mut testbed = testbed();
    let annotated = |name, key: &str, value: &str| {
        with(gpu_pod(name, 1), "/metadata/annotations", json!({key: value}))
    };
    let deadline =
        |name, seconds: u64| with(gpu_pod(name, 1), "/spec/activeDeadlineSeconds", json!(seconds));
    for pod in [
        gpu_pod("open", 1),
        deadline("late", HOUR),
        annotated("loses-much", "octavo.dev/seconds-at-risk", "3600"),
        annotated("half-a-hook", "checkpoint.octavo.dev/deadline-seconds", "60"),
        deadline("short", HOUR - 1),
        annotated("loses-little", "octavo.dev/seconds-at-risk", "600"),
        annotated("saves", "checkpoint.octavo.dev/signal", "SIGUSR1"),
        annotated("moves", "octavo.dev/movable", "true"),
        with(
            gpu_pod("tolerates", 1),
            "/spec/tolerations",
            json!([{"key": "octavo.dev/maintenance", "operator": "Exists"}]),
        ),
        pod("without-gpus", "1"),
    ] {
        testbed.pod(&pod);
    }
    let placed = ["loses-little", "moves", "saves", "short", "tolerates", "without-gpus"];
    assert_eq!(testbed.settle(), placed.map(|name| on(name, "a")));
    for name in ["open", "late", "loses-much", "half-a-hook"] {
        let (reason, message) = testbed.reason(name).expect("a reason");
        assert_eq!((reason, message), ("Unschedulable", format!("no node is feasible: {REASON}")));
    }
    // What was decided can be decided again.
    let name = ObjectName::new("team", "late");
    let record = testbed.scheduler.recorded_pod_decision(&name).expect("a record");
    assert_eq!(&*record.forbidden, ["a".to_owned()]);
    let name = ObjectName::new("team", "half-a-hook");
    assert_replays(testbed.scheduler.recorded_pod_decision(&name).expect("a record"));
    let name = ObjectName::new("team", "open");
    let explained = testbed.scheduler.explain_pod(&name).expect("the pod");
    assert!(explained.waiting.expect("it waits").message.contains(REASON));
}

#[test]
fn other_nodes_take_the_pods_meanwhile() {
    let mut testbed = testbed();
    testbed.node(&plugin_node("b"));
    testbed.object(&pod_group("g", 2, json!({})));
    for name in ["m0", "m1"] {
        let labels = json!({"octavo.dev/pod-group": "g"});
        testbed.pod(&with(gpu_pod(name, 4), "/metadata/labels", labels));
    }
    assert_eq!(testbed.settle(), [on("m0", "b"), on("m1", "b")]);
    testbed.pod(&gpu_pod("p", 1));
    assert_eq!(testbed.settle(), []);
    let (_, message) = testbed.reason("p").expect("a reason");
    assert!(message.ends_with(&format!("; infeasible nodes: {REASON}")), "{message}");
}

#[test]
fn no_pod_is_evicted_on_a_node_with_work_ahead() {
    let mut testbed = testbed();
    let short = with(gpu_pod("short", 8), "/spec/activeDeadlineSeconds", json!(60));
    testbed.pod(&short);
    assert_eq!(testbed.settle(), [on("short", "a")]);
    testbed.pod(&with(gpu_pod("high", 8), "/spec/priority", json!(100)));
    assert_eq!(evicted(&testbed.ops()), [""; 0]);
}

#[test]
fn a_change_or_an_end_of_the_work_wakes_pods() {
    for change in ["deleted", "later", "pods may run on", "over"] {
        let mut testbed = testbed();
        testbed.pod(&gpu_pod("p", 1));
        assert_eq!(testbed.settle(), []);
        match change {
            "deleted" => drop_work(&mut testbed),
            "later" => {
                let work = with(work(), "/spec/startTime", json!("2026-01-07T12:00:00Z"));
                testbed.object(&with(work, "/spec/endTime", json!("2026-01-07T13:00:00Z")));
            }
            "pods may run on" => testbed.object(&with(work(), "/spec/drain", json!("None"))),
            _ => {
                testbed.scheduler.set_wall_clock(NOON + HOUR - 1);
                assert_eq!(testbed.settle(), [], "the work is in progress");
                testbed.scheduler.set_wall_clock(NOON + HOUR);
            }
        }
        assert_eq!(testbed.settle(), [on("p", "a")], "{change}");
    }
}

#[test]
fn work_comes_near_with_the_time() {
    let day = 86_400;
    let mut testbed = Testbed::new();
    testbed.object(&work());
    testbed.scheduler.set_wall_clock(NOON - day - 1);
    testbed.node(&plugin_node("a"));
    testbed.pod(&gpu_pod("far", 1));
    assert_eq!(testbed.settle(), [on("far", "a")]);
    testbed.scheduler.set_wall_clock(NOON - day);
    testbed.pod(&gpu_pod("near", 1));
    assert_eq!(testbed.settle(), []);
    // Without a horizon the taint alone counts.
    let config = SchedulerConfig { maintenance_horizon_seconds: 0, ..SchedulerConfig::default() };
    let mut testbed = Testbed::with_config(config);
    testbed.object(&work());
    testbed.scheduler.set_wall_clock(NOON - 1);
    testbed.node(&plugin_node("a"));
    testbed.pod(&gpu_pod("p", 1));
    assert_eq!(testbed.settle(), [on("p", "a")]);
}

#[test]
fn a_nominated_place_is_given_up_once_work_is_planned_there() {
    let mut testbed = Testbed::new();
    testbed.scheduler.set_wall_clock(NOON - HOUR);
    testbed.node(&plugin_node("a"));
    testbed.pod(&gpu_pod("low", 8));
    assert_eq!(testbed.settle().len(), 1);
    testbed.pod(&with(gpu_pod("high", 8), "/spec/priority", json!(100)));
    testbed.settle();
    assert_eq!(testbed.scheduler.counts().nominated, 1);
    testbed.object(&work());
    testbed.drop_pod("low");
    assert_eq!(testbed.settle(), []);
    assert_eq!(testbed.scheduler.counts().nominated, 0);
}

#[test]
fn labels_of_a_node_decide_whether_it_is_meant() {
    let mut testbed = testbed();
    let other = json!({"octavo.dev/scheduler": "octavo"});
    testbed.pod(&gpu_pod("p", 1));
    assert_eq!(testbed.settle(), []);
    testbed.node(&with(plugin_node("a"), "/metadata/labels", other));
    assert_eq!(testbed.settle(), [on("p", "a")]);
    testbed.node(&plugin_node("a"));
    testbed.pod(&gpu_pod("q", 1));
    assert_eq!(testbed.settle(), []);
}
