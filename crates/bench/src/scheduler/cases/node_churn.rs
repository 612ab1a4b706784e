//! Nodes that are added one by one to a full cluster, then removed one by one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use octavo_figure::{Goal, percentile};
use serde_json::json;

use super::create_to_bound::Arrivals;
use super::fill::run_on_nodes;
use super::float;
use crate::scheduler::api::Kind;
use crate::scheduler::objects::{self, GPUS, Gpus, PodRequest};
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::{cost, workers};

/// Nodes that come and go.
pub(super) const NODES: usize = 200;
/// Time between two of them.
const INTERVAL: Duration = Duration::from_millis(200);
/// How long the waiting pods may take after the last node.
const TIMEOUT: Duration = Duration::from_mins(2);

const WAIT: &str = "wait";

/// Fills the cluster, then adds and removes `added` nodes.
pub(super) async fn run(
    testbed: &Testbed,
    added: usize,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let fill = testbed.world.nodes * GPUS;
    let contender = testbed.contender;
    let pod = move |name: &str, number: usize| {
        (objects::pod(name, PodRequest::Gpus(1), contender), number / GPUS)
    };
    run_on_nodes(testbed, "fill", fill, pod).await?;
    testbed.start().await?;
    let api = testbed.api.clone();
    workers::in_parallel(added * GPUS, move |number| {
        let api = api.clone();
        async move {
            let name = format!("{WAIT}-{number}");
            let pod = objects::pod(&name, PodRequest::Gpus(1), contender);
            api.create(Kind::Pods, &pod).await.map(drop)
        }
    })
    .await?;
    testbed.quiet().await?;
    add(testbed, added, measured).await?;
    let bound = testbed.observer.seen().bound(WAIT);
    let expected = |bound: &[(&str, usize, usize)]| Expected {
        bound: bound.iter().map(|(set, least, most)| ((*set).into(), *least..=*most)).collect(),
        gangs: BTreeMap::new(),
    };
    let sets = [("fill", fill, fill), (WAIT, bound, added * GPUS)];
    validate::check(&testbed.api, contender, testbed.world.gpus, &expected(&sets)).await?;
    remove(testbed, added, measured).await?;
    let sets = [("fill", fill, fill), (WAIT, 0, 0)];
    validate::check(&testbed.api, contender, testbed.world.gpus, &expected(&sets)).await
}

/// Adds the nodes. Each has room for eight of the waiting pods.
async fn add(testbed: &Testbed, added: usize, measured: &mut Measured) -> anyhow::Result<()> {
    let before = cost::begin(testbed).await?;
    let began = Instant::now();
    let mut times = Vec::new();
    for number in 0..added {
        tokio::time::sleep_until((began + INTERVAL * u32::try_from(number)?).into()).await;
        times.push(Instant::now());
        let node = testbed.world.nodes + number;
        let node = objects::node(node, Gpus::Plain, testbed.contender);
        testbed.api.create(Kind::Nodes, &node).await?;
    }
    let all = testbed.observer.all_bound(WAIT, added * GPUS, TIMEOUT).await;
    let took = began.elapsed().as_secs_f64();
    let cost = before.end(testbed).await?;
    let mut bound: Vec<Instant> = {
        let seen = testbed.observer.seen();
        seen.of(WAIT).filter_map(|pod| pod.bound).collect()
    };
    bound.sort_unstable();
    // The room of the first nodes is used when eight, sixteen, ... pods are bound.
    let used = bound.iter().skip(GPUS - 1).step_by(GPUS).zip(&times);
    let mut waits: Vec<f64> =
        used.map(|(bound, node)| (*bound - *node).as_secs_f64() * 1e3).collect();
    waits.sort_by(f64::total_cmp);
    let what = "nodes added one by one: a node's create to eight pods bound";
    for (name, percent) in [("p50", 50.0), ("p99", 99.0)] {
        if let Some(wait) = percentile(&waits, percent) {
            measured.add(format!("{what}, {name}"), "ms", wait);
        }
    }
    if let Some(seconds) = cost.scheduler_cpu {
        let what = "processor time of the scheduler, while nodes are added";
        measured.add(what, "% of a core", seconds * 100.0 / took);
    }
    if all.is_err() {
        measured.mark_unfinished();
    }
    let what = format!("waiting pods bound within {} s of the last node", TIMEOUT.as_secs());
    let goal = Goal::Exactly(float(added * GPUS));
    measured.add_with_goal(what, "pods", goal, float(bound.len()));
    Ok(())
}

/// Removes the nodes: each is cordoned, loses its pods, and is deleted. A plain pod comes with each.
async fn remove(testbed: &Testbed, added: usize, measured: &mut Measured) -> anyhow::Result<()> {
    // Those that still wait would take the place of pods that end.
    let waiting: Vec<String> = {
        let seen = testbed.observer.seen();
        let waiting = seen.pods.iter().filter(|(_, pod)| pod.bound.is_none());
        waiting.map(|(name, _)| name.clone()).collect()
    };
    testbed.delete_pods(&waiting).await?;
    let mut arrivals = Arrivals::new("fit", PodRequest::Plain);
    let began = Instant::now();
    for number in 0..added {
        tokio::time::sleep_until((began + INTERVAL * u32::try_from(number)?).into()).await;
        let node = objects::node_name(testbed.world.nodes + number);
        let cordon = json!({"spec": {"unschedulable": true}});
        testbed.api.merge(Kind::Nodes, &node, &cordon).await?;
        arrivals.create(testbed).await?;
        delete_pods_of(testbed, |pods_node| pods_node == node, WAIT).await?;
        testbed.api.delete(Kind::Nodes, &node).await?;
    }
    arrivals.all_bound(testbed, TIMEOUT).await?;
    let goals = [Goal::None; 2];
    arrivals.add(testbed, "a pod that fits, while nodes are removed", goals, measured)?;
    // Plain pods were bound to nodes that went afterwards. No kubelet and no owner replaces them.
    let is_gone = |node: &str| {
        let number = node.rsplit_once('-').and_then(|(_, number)| number.parse::<usize>().ok());
        number.is_some_and(|number| number >= testbed.world.nodes)
    };
    delete_pods_of(testbed, is_gone, "fit").await
}

async fn delete_pods_of(
    testbed: &Testbed,
    is_node: impl Fn(&str) -> bool,
    set: &str,
) -> anyhow::Result<()> {
    let names: Vec<String> = {
        let seen = testbed.observer.seen();
        let of_node = seen.pods.iter().filter(|(name, pod)| {
            crate::scheduler::observer::set_of(name) == set
                && pod.node.as_deref().is_some_and(&is_node)
        });
        of_node.map(|(name, _)| name.clone()).collect()
    };
    testbed.delete_pods(&names).await
}
