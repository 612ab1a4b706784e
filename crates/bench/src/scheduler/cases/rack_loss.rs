//! A rack of running gangs is lost, is shut down, and returns. Then a single node is lost.
//!
//! Octavo's controller deletes the members of gangs on lost nodes, as in the chart. A whole rack that is not
//! ready is probably cut off, so nothing is deleted there. Once its nodes have the taint
//! `node.kubernetes.io/out-of-service`, all members of its gang are: that waits for no budget. The
//! single node is within the budget of 5% of the GPU nodes.
//!
//! The benchmark stands in for the node lifecycle controller, the kubelets and the owner of the pods.
//! A rack without pods takes the gang.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::ensure;
use octavo_figure::Goal;
use serde_json::{Value, json};

use super::fill::run_on_nodes;
use super::float;
use crate::scheduler::api::Kind;
use crate::scheduler::contender::Contender;
use crate::scheduler::fake_controllers::{Endings, FakeControllers, ReplacementController};
use crate::scheduler::objects::{self, GPUS, LEVELS, PodRequest, TopologyRequest};
use crate::scheduler::observer::ObservedState;
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};

/// Nodes of a rack.
const RACK: usize = LEVELS[1].1;
/// The lost rack, another with pods, and one without.
pub(super) const MIN_NODES: usize = 3 * RACK;
/// The pods, which are members of gangs.
const FILL: &str = "fill";
/// How long the rack is lost before it is shut down.
const LOST: Duration = Duration::from_mins(2);
/// Seconds that the pods tolerate the loss of their node.
const TOLERATION: u32 = 30;
/// Their grace period in seconds.
const GRACE: u32 = 30;
/// When members on a lost node are replaced (`repairAfterSeconds`), and how long that may take.
const REPAIR_AFTER: Duration = Duration::from_mins(1);
const REPAIR_TIMEOUT: Duration = Duration::from_secs(30);
const STEP_TIMEOUT: Duration = Duration::from_mins(1);

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeState {
    Ready,
    /// It does not report.
    Lost,
    /// The same, and an administrator says that it is shut down.
    ShutDown,
}

/// Running pods for some nodes, all but a rack of them: a gang in each rack.
pub(super) fn pods(nodes: usize) -> usize {
    (nodes - RACK) * GPUS
}

/// Fills the cluster but for a rack, then loses first another rack and then a node.
pub(super) async fn run(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let (contender, count) = (testbed.contender, pods(testbed.world.nodes));
    fill(testbed).await?;
    testbed.start().await?;
    let make = Box::new(move |name: &str| member(name, contender));
    let owner = ReplacementController { set: FILL, make };
    let controllers =
        FakeControllers::start(&testbed.api, &testbed.observer, Endings::default(), Some(owner));
    lose_rack(testbed, measured).await?;
    shut_rack_down(testbed, measured).await?;
    return_rack(testbed, measured).await?;
    lose_node(testbed, measured).await?;
    drop(controllers);
    let bound = [(FILL, count), ("back", 1)];
    let bound = bound.map(|(set, count)| (set.to_owned(), count..=count));
    let expected = Expected { bound: bound.into(), gangs: BTreeMap::new() };
    validate::check(&testbed.api, contender, testbed.world.gpus, &expected).await
}

async fn fill(testbed: &Testbed) -> anyhow::Result<()> {
    let (contender, busy) = (testbed.contender, testbed.world.nodes - RACK);
    for gang in 0..busy.div_ceil(RACK) {
        let size = RACK.min(busy - gang * RACK) * GPUS;
        let group = objects::group(&gang_name(gang), size, TopologyRequest::Anywhere);
        testbed.api.create(Kind::Groups, &group).await?;
    }
    let pod = move |name: &str, number: usize| (member(name, contender), number / GPUS);
    run_on_nodes(testbed, FILL, pods(testbed.world.nodes), pod).await
}

/// A pod by its name, whose number says in which gang it is.
fn member(name: &str, contender: Contender) -> Value {
    let number = name.rsplit_once('-').and_then(|(_, number)| number.parse::<usize>().ok());
    let gang = number.unwrap_or_default() / (RACK * GPUS);
    let mut pod = objects::pod(name, PodRequest::Gpus(1), contender);
    let tolerate = |key: &str| {
        json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists",
            "effect": "NoExecute", "tolerationSeconds": TOLERATION})
    };
    // A pod without one would be gone before its deletion timestamp is seen.
    pod["spec"]["terminationGracePeriodSeconds"] = GRACE.into();
    pod["spec"]["tolerations"] = json!([tolerate("unreachable"), tolerate("not-ready")]);
    objects::member(pod, &gang_name(gang))
}

async fn lose_rack(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let asked_before = testbed.observer.seen().ending.len();
    for node in 0..RACK {
        set_node(testbed, node, NodeState::Lost).await?;
    }
    tokio::time::sleep(LOST).await;
    let asked = testbed.observer.seen().ending.len() - asked_before;
    let what = format!("a rack of {RACK} nodes lost for {} s: pods deleted", LOST.as_secs());
    measured.add_with_goal(what, "pods", Goal::Exactly(0.0), float(asked));
    Ok(())
}

async fn shut_rack_down(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let before = Before::now(testbed);
    for node in 0..RACK {
        set_node(testbed, node, NodeState::ShutDown).await?;
    }
    let began = Instant::now();
    let (deleted, bound) = before.repaired(testbed, RACK * GPUS, STEP_TIMEOUT).await?;
    let what = "the rack gets the taint out-of-service: all its members deleted";
    let took = deleted.saturating_duration_since(began).as_secs_f64();
    measured.add_with_goal(what, "s", Goal::Below(10.0), took);
    let what = "the same: its gang bound on another rack";
    measured.add_with_goal(what, "s", Goal::Below(15.0), (bound - began).as_secs_f64());
    Ok(())
}

async fn return_rack(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let began = Instant::now();
    for node in 0..RACK {
        set_node(testbed, node, NodeState::Ready).await?;
    }
    let [_, (rack, _)] = LEVELS;
    let mut pod = objects::pod("back-0", PodRequest::Plain, testbed.contender);
    pod["spec"]["nodeSelector"] = json!({rack: "rack-0"});
    testbed.api.create(Kind::Pods, &pod).await?;
    let bound = testbed.observer.all_bound("back", 1, STEP_TIMEOUT).await?;
    let what = "the rack returns: its first node ready to a pod bound there";
    measured.add_with_goal(what, "s", Goal::Below(1.0), (bound - began).as_secs_f64());
    Ok(())
}

/// Loses the last node with pods.
async fn lose_node(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let before = Before::now(testbed);
    let began = Instant::now();
    set_node(testbed, testbed.world.nodes - RACK - 1, NodeState::Lost).await?;
    let timeout = REPAIR_AFTER + REPAIR_TIMEOUT;
    let (deleted, bound) = before.repaired(testbed, GPUS, timeout).await?;
    // The controller counts in whole seconds, so it may begin within the last one.
    let late = (deleted - began).as_secs_f64() - REPAIR_AFTER.as_secs_f64();
    ensure!(late > -1.5, "members were deleted {:.1} s too early", -late);
    let what = "a single node lost: end of repairAfterSeconds to its eight members deleted";
    measured.add_with_goal(what, "s", Goal::Below(5.0), late.max(0.0));
    let what = "the same: the last of them deleted to all bound elsewhere";
    let took = bound.saturating_duration_since(deleted).as_secs_f64();
    measured.add_with_goal(what, "s", Goal::Below(2.0), took);
    Ok(())
}

/// How many pods had been deleted, and how many were gone.
struct Before {
    ending: usize,
    gone: usize,
}

impl Before {
    fn now(testbed: &Testbed) -> Self {
        let seen = testbed.observer.seen();
        Self { ending: seen.ending.len(), gone: seen.gone.len() }
    }

    /// Waits until so many members have been deleted since, and all are bound again. Returns when the
    /// last one was deleted and when the last one was bound.
    async fn repaired(
        &self,
        testbed: &Testbed,
        count: usize,
        timeout: Duration,
    ) -> anyhow::Result<(Instant, Instant)> {
        let are_deleted = |seen: &ObservedState| {
            let asked = seen.ending.get(self.ending..).unwrap_or_default();
            (asked.len() >= count).then(|| asked.iter().map(|(_, at)| *at).max()).flatten()
        };
        let what = "the members on lost nodes are deleted";
        let deleted = testbed.observer.until(what, timeout, are_deleted).await?;
        let all = pods(testbed.world.nodes);
        let are_back = |seen: &ObservedState| {
            let have_left = seen.gone.len() >= self.gone + count;
            (have_left && seen.bound(FILL) >= all).then(|| seen.last_bound(FILL)).flatten()
        };
        let what = "the members are bound again";
        let bound = testbed.observer.until(what, STEP_TIMEOUT, are_back).await?;
        testbed.quiet().await?;
        let asked = testbed.observer.seen().ending.len() - self.ending;
        ensure!(asked == count, "{asked} pods were deleted, of {count} on lost nodes");
        Ok((deleted, bound))
    }
}

/// What the node lifecycle controller writes when a kubelet is lost and when it returns, and an
/// administrator when the node is shut down.
async fn set_node(testbed: &Testbed, number: usize, state: NodeState) -> anyhow::Result<()> {
    let name = objects::node_name(number);
    let taint = |name: &str, effect: &str| {
        let key = format!("node.kubernetes.io/{name}");
        json!({"key": key, "effect": effect})
    };
    let lost = ["NoSchedule", "NoExecute"].map(|effect| taint("unreachable", effect)).to_vec();
    let (status, taints) = match state {
        NodeState::Ready => ("True", Vec::new()),
        NodeState::Lost => ("Unknown", lost),
        NodeState::ShutDown => {
            ("Unknown", [lost, vec![taint("out-of-service", "NoExecute")]].concat())
        }
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
