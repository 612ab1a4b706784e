//! Gangs that fit the cluster's free capacity, but not the free capacity of single nodes: pods have
//! to move.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;

use octavo_api::names;
use octavo_figure::Goal;
use serde_json::{Value, json};

use super::fill::run_on_nodes;
use crate::scheduler::api::Kind;
use crate::scheduler::contender::Contender;
use crate::scheduler::fake_controllers::{Endings, FakeControllers, ReplacementController};
use crate::scheduler::objects::{self, PodRequest, TopologyRequest};
use crate::scheduler::observer::{ObservedState, set_of};
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::{raw, workers};

/// Number of gangs at full size.
const GANGS: usize = 41;
pub(super) const NODES: usize = 500;
/// Nodes for one gang, with the same spare capacity as at full size.
pub(super) const MIN_NODES: usize = NODES.div_ceil(GANGS);
/// Pods of a gang, and the GPUs of each.
const PODS: usize = 10;
const GPUS_EACH: usize = 6;
/// Pods that may move for one gang: one on each of its nodes, and some to spare.
pub(super) const MAX_MOVES: u32 = 32;
/// One-GPU pods that run on each node.
const RUNNING_PODS_PER_NODE: usize = 3;
/// How long all of it may take.
const CASE_TIMEOUT: Duration = Duration::from_mins(5);
/// Running pods that are recreated after eviction.
const FILL: &str = "fill";

/// Number of gangs for some nodes. Their part of the free capacity never exceeds that at full size,
/// where the last gang just fits.
pub(super) fn gangs(nodes: usize) -> usize {
    nodes * GANGS / NODES
}

/// Three pods on each node, then all gangs at once.
pub(super) async fn run(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let gangs = gangs(testbed.world.nodes);
    let pods = testbed.world.nodes * RUNNING_PODS_PER_NODE;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": FILL}});
    let owner: Arc<str> = raw::uid(&testbed.api.create(Kind::Owners, &owner).await?)?.into();
    fill(testbed, pods, &owner).await?;
    testbed.start().await?;
    let contender = testbed.contender;
    let make = Box::new(move |name: &str| filler(name, contender, &owner));
    let controllers = FakeControllers::start(
        &testbed.api,
        &testbed.observer,
        Endings::default(),
        Some(ReplacementController { set: FILL, make }),
    );
    let gone_before = testbed.observer.seen().gone.len();
    for gang in 0..gangs {
        let group = objects::group(&gang_name(gang), PODS, TopologyRequest::Anywhere);
        testbed.api.create(Kind::Groups, &group).await?;
    }
    let began = Instant::now();
    let api = testbed.api.clone();
    workers::in_parallel(gangs * PODS, move |number| {
        let api = api.clone();
        async move {
            let gang = gang_name(number / PODS);
            let name = format!("{gang}-{}", number % PODS);
            let pod = objects::pod(&name, PodRequest::Gpus(GPUS_EACH), contender);
            api.create(Kind::Pods, &objects::member(pod, &gang)).await.map(drop)
        }
    })
    .await?;
    let last_create = Instant::now();
    let are_bound = |seen: &ObservedState| {
        let gangs_bound = (0..gangs).all(|gang| seen.bound(&gang_name(gang)) == PODS);
        (gangs_bound && seen.bound(FILL) == pods).then_some(())
    };
    testbed
        .observer
        .until("all gangs and those that moved are bound", CASE_TIMEOUT, are_bound)
        .await?;
    let all = Instant::now();
    let (first, moved) = {
        let seen = testbed.observer.seen();
        let gone = seen.gone.get(gone_before..).unwrap_or_default();
        let moved: Vec<Instant> =
            gone.iter().filter(|(name, _)| set_of(name) == FILL).map(|gone| gone.1).collect();
        (moved.first().copied().context("no pod had to move")?, moved.len())
    };
    drop(controllers);
    let mut expected =
        Expected { bound: [(FILL.to_owned(), pods..=pods)].into(), gangs: BTreeMap::new() };
    for gang in 0..gangs {
        expected.bound.insert(gang_name(gang), PODS..=PODS);
        expected.gangs.insert(gang_name(gang), TopologyRequest::Anywhere);
    }
    validate::check(&testbed.api, testbed.contender, testbed.world.gpus, &expected).await?;
    let what = "first create to the first pod that moves, as a watch sees it";
    measured.add_with_goal(what, "s", Goal::Below(5.0), (first - began).as_secs_f64());
    let what = "last create to all bound, those that moved too";
    measured.add_with_goal(what, "s", Goal::Below(60.0), (all - last_create).as_secs_f64());
    measured.add("pods that moved", "pods", super::float(moved));
    Ok(())
}

async fn fill(testbed: &Testbed, pods: usize, owner: &Arc<str>) -> anyhow::Result<()> {
    let (contender, owner) = (testbed.contender, Arc::clone(owner));
    let pod = move |name: &str, number: usize| {
        (filler(name, contender, &owner), number / RUNNING_PODS_PER_NODE)
    };
    run_on_nodes(testbed, FILL, pods, pod).await
}

fn filler(name: &str, contender: Contender, owner: &str) -> Value {
    let mut pod = objects::pod(name, PodRequest::Gpus(1), contender);
    // The pod may restart elsewhere. Without this annotation, the scheduler does not move it.
    pod["metadata"]["annotations"] = json!({names::MOVABLE: "true"});
    // The scheduler recognizes the successor by its owner. The benchmark creates successors; a real
    // controller would create its own.
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": FILL, "uid": owner, "controller": true,
    }]);
    pod
}

fn gang_name(gang: usize) -> String {
    format!("team{gang}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::case::Case;
    use crate::scheduler::cases::cluster;

    #[test]
    fn at_every_scale_all_gangs_fit_beside_those_that_move() {
        for thousandth in 1..=1_000 {
            let nodes = cluster(Case::Defragmentation, f64::from(thousandth) / 1_000.0).nodes;
            let gangs = gangs(nodes);
            assert!(gangs > 0, "{nodes} nodes");
            // No node fits two gang pods. A gang pod takes a node, and only the rest of that node
            // remains free.
            let taken = gangs * PODS;
            let spare = taken.min(nodes) * (objects::GPUS - GPUS_EACH);
            let whole = nodes.saturating_sub(taken) * objects::GPUS;
            assert!(taken <= nodes, "{gangs} gangs on {nodes} nodes");
            assert!(
                nodes * RUNNING_PODS_PER_NODE <= spare + whole,
                "{gangs} gangs on {nodes} nodes"
            );
            // The free capacity per node is at least that at full size.
            let free = |nodes: usize, gangs: usize| {
                let free =
                    nodes * (objects::GPUS - RUNNING_PODS_PER_NODE) - gangs * PODS * GPUS_EACH;
                crate::scheduler::cases::float(free) / crate::scheduler::cases::float(nodes)
            };
            assert!(free(nodes, gangs) >= free(NODES, GANGS), "{gangs} gangs on {nodes} nodes");
        }
        assert_eq!(gangs(cluster(Case::Defragmentation, 1.0).nodes), 41);
    }
}
