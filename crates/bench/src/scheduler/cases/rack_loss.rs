//! A rack of running gangs that is not ready for two minutes, then a single node.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use octavo_figure::Goal;
use serde_json::json;

use super::fill::run_on_nodes;
use super::float;
use crate::scheduler::api::Kind;
use crate::scheduler::fake_controllers::{Endings, FakeControllers};
use crate::scheduler::objects::{self, GPUS, LEVELS, PodRequest, TopologyRequest};
use crate::scheduler::observer::ObservedState;
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};

/// Nodes of a rack.
const RACK: usize = LEVELS[1].1;
/// The lost rack, and another.
pub(super) const MIN_NODES: usize = 2 * RACK;
/// How long the rack is lost.
const LOST: Duration = Duration::from_mins(2);
/// Seconds that the pods tolerate the loss of their node.
const TOLERATION: u32 = 30;
/// Their grace period in seconds.
const GRACE: u32 = 30;
/// When members on a lost node are replaced (`repairAfterSeconds`), and how long that may take.
const REPAIR_AFTER: Duration = Duration::from_mins(1);
const REPAIR_TIMEOUT: Duration = Duration::from_secs(30);
const STEP_TIMEOUT: Duration = Duration::from_mins(1);

/// Running pods for some nodes: a gang in each rack.
pub(super) fn pods(nodes: usize) -> usize {
    nodes * GPUS
}

/// Fills the cluster, then loses first the rack and then the last node.
pub(super) async fn run(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let nodes = testbed.world.nodes;
    for gang in 0..nodes.div_ceil(RACK) {
        let size = RACK.min(nodes - gang * RACK) * GPUS;
        let group = objects::group(&gang_name(gang), size, TopologyRequest::Anywhere);
        testbed.api.create(Kind::Groups, &group).await?;
    }
    let contender = testbed.contender;
    let pod = move |name: &str, number: usize| {
        let mut pod = objects::pod(name, PodRequest::Gpus(1), contender);
        let tolerate = |key: &str| {
            json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists",
                "effect": "NoExecute", "tolerationSeconds": TOLERATION})
        };
        // A pod without one would be gone before its deletion timestamp is seen.
        pod["spec"]["terminationGracePeriodSeconds"] = GRACE.into();
        pod["spec"]["tolerations"] = json!([tolerate("unreachable"), tolerate("not-ready")]);
        (objects::member(pod, &gang_name(number / (RACK * GPUS))), number / GPUS)
    };
    run_on_nodes(testbed, "fill", pods(nodes), pod).await?;
    testbed.start().await?;
    let controllers =
        FakeControllers::start(&testbed.api, &testbed.observer, Endings::default(), None);
    lose_rack(testbed, measured).await?;
    let deleted = lose_node(testbed, measured).await?;
    drop(controllers);
    let fill = pods(nodes) - deleted;
    let bound = [("fill", fill), ("back", 1)];
    let bound = bound.map(|(set, count)| (set.to_owned(), count..=count));
    let expected = Expected { bound: bound.into(), gangs: BTreeMap::new() };
    validate::check(&testbed.api, contender, testbed.world.gpus, &expected).await
}

async fn lose_rack(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let asked_before = testbed.observer.seen().ending.len();
    for node in 0..RACK {
        set_ready(testbed, node, false).await?;
    }
    tokio::time::sleep(LOST).await;
    let began = Instant::now();
    for node in 0..RACK {
        set_ready(testbed, node, true).await?;
    }
    let [_, (rack, _)] = LEVELS;
    let mut pod = objects::pod("back-0", PodRequest::Plain, testbed.contender);
    pod["spec"]["nodeSelector"] = json!({rack: "rack-0"});
    testbed.api.create(Kind::Pods, &pod).await?;
    let bound = testbed.observer.all_bound("back", 1, STEP_TIMEOUT).await?;
    let asked = testbed.observer.seen().ending.len() - asked_before;
    let what = format!("a rack of {RACK} nodes lost for {} s: pods deleted", LOST.as_secs());
    measured.add_with_goal(what, "pods", Goal::Exactly(0.0), float(asked));
    let what = "the rack returns: its first node ready to a pod bound there";
    measured.add_with_goal(what, "s", Goal::Below(1.0), (bound - began).as_secs_f64());
    Ok(())
}

/// Loses the last node. Returns how many of its pods were deleted.
async fn lose_node(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<usize> {
    let asked_before = testbed.observer.seen().ending.len();
    let began = Instant::now();
    set_ready(testbed, testbed.world.nodes - 1, false).await?;
    let all_asked = |seen: &ObservedState| {
        let asked = seen.ending.get(asked_before..).unwrap_or_default();
        (asked.len() >= GPUS).then(|| asked.iter().map(|(_, at)| *at).max()).flatten()
    };
    let timeout = REPAIR_AFTER + REPAIR_TIMEOUT;
    let what = "the pods of the lost node are deleted";
    let asked = testbed.observer.until(what, timeout, all_asked).await?;
    let late = (asked - began).as_secs_f64() - REPAIR_AFTER.as_secs_f64();
    let what = "a single node lost: end of repairAfterSeconds to its eight members deleted";
    measured.add_with_goal(what, "s", Goal::Below(2.0), late);
    testbed.quiet().await?;
    let deleted = testbed.observer.seen().ending.len() - asked_before;
    Ok(deleted)
}

/// What the node lifecycle controller writes when a kubelet is lost, and when it returns.
async fn set_ready(testbed: &Testbed, number: usize, is_ready: bool) -> anyhow::Result<()> {
    let name = objects::node_name(number);
    let (status, taints) = if is_ready {
        ("True", json!([]))
    } else {
        let taint =
            |effect: &str| json!({"key": "node.kubernetes.io/unreachable", "effect": effect});
        ("Unknown", json!([taint("NoSchedule"), taint("NoExecute")]))
    };
    let condition = json!({
        "type": "Ready", "status": status, "reason": "Bench", "message": "set by the benchmark",
    });
    let change = json!({"status": {"conditions": [condition]}});
    testbed.api.merge(Kind::Nodes, &format!("{name}/status"), &change).await?;
    let change = json!({"spec": {"taints": taints}});
    testbed.api.merge(Kind::Nodes, &name, &change).await.map(drop)
}

fn gang_name(gang: usize) -> String {
    format!("gang{gang}")
}
