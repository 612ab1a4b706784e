//! Gangs whose pods each claim a GPU and a NIC of the same PCIe root. They take every GPU.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use octavo_figure::Goal;

use super::float;
use super::throughput::add_cost;
use crate::scheduler::api::Kind;
use crate::scheduler::device_objects::GPU_AND_NIC_TEMPLATE;
use crate::scheduler::objects::{self, GPUS, LEVELS, PodRequest, TopologyRequest};
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::{cost, workers};

/// Nodes at full size.
pub(super) const NODES: usize = 64;
/// Pods of a gang.
const PODS: usize = 32;
/// Nodes of a gang.
pub(super) const MIN_NODES: usize = PODS / GPUS;
/// How long all of it may take.
const TIMEOUT: Duration = Duration::from_mins(3);

/// Gangs for some nodes.
pub(super) fn gangs(nodes: usize) -> usize {
    nodes / MIN_NODES
}

/// All gangs at once, each within a rack.
pub(super) async fn run(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let gangs = gangs(testbed.world.nodes);
    testbed.start().await?;
    let [_, (rack, _)] = LEVELS;
    let is_octavo = testbed.contender.is_octavo();
    if is_octavo {
        for gang in 0..gangs {
            let group = objects::group(&name(gang), PODS, TopologyRequest::Required(rack));
            testbed.api.create(Kind::Groups, &group).await?;
        }
    }
    let before = cost::begin(testbed).await?;
    let began = Instant::now();
    let (api, contender) = (testbed.api.clone(), testbed.contender);
    workers::in_parallel(gangs * PODS, move |number| {
        let api = api.clone();
        async move {
            let gang = name(number / PODS);
            let request = PodRequest::Template(GPU_AND_NIC_TEMPLATE);
            let pod = objects::pod(&format!("{gang}-{}", number % PODS), request, contender);
            api.create(Kind::Pods, &objects::member(pod, &gang)).await.map(drop)
        }
    })
    .await?;
    let last_create = Instant::now();
    let deadline = last_create + TIMEOUT;
    let mut expected = Expected { bound: BTreeMap::new(), gangs: BTreeMap::new() };
    let (mut bound, mut last) = (0, None);
    for gang in 0..gangs {
        let left = deadline.saturating_duration_since(Instant::now());
        let at = testbed.observer.all_bound(&name(gang), PODS, left).await;
        last = last.max(at.ok());
        let of_gang = testbed.observer.seen().bound(&name(gang));
        bound += of_gang;
        expected.bound.insert(name(gang), of_gang..=PODS);
        if is_octavo {
            expected.gangs.insert(name(gang), TopologyRequest::Required(rack));
        }
    }
    testbed.quiet().await?;
    let cost = before.end(testbed).await?;
    validate::check(&testbed.api, testbed.contender, testbed.world.gpus, &expected).await?;
    let what = format!("pods bound within {} min", TIMEOUT.as_secs() / 60);
    measured.add_with_goal(what, "pods", Goal::Exactly(float(gangs * PODS)), float(bound));
    if let Some(last) = last.filter(|_| bound == gangs * PODS) {
        measured.add("first create to all bound", "s", (last - began).as_secs_f64());
        let took = last.saturating_duration_since(last_create);
        measured.add("last create to all bound", "s", took.as_secs_f64());
    } else {
        measured.mark_unfinished();
    }
    add_cost(&cost, (gangs * PODS, bound), measured);
    Ok(())
}

fn name(gang: usize) -> String {
    format!("gang{gang}")
}
