//! A scheduler that is killed and started on a cluster with thousands of allocated claims.

use std::collections::BTreeMap;
use std::time::Duration;

use octavo_figure::Goal;

use super::restart::first_binding;
use crate::scheduler::api::Kind;
use crate::scheduler::contender::Contender;
use crate::scheduler::device_objects::{self, GPU_TEMPLATE};
use crate::scheduler::objects::{self, GPUS, PodRequest};
use crate::scheduler::raw::{self, SlottedPod};
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::{cost, workers};

/// Restarts with each kind of pod. The last node has GPUs for those with a claim.
const RESTARTS: usize = 3;
const STEP_TIMEOUT: Duration = Duration::from_mins(5);

/// Claims for some nodes: all nodes are full but one.
pub(super) fn claims(nodes: usize) -> usize {
    (nodes - 1).max(1) * GPUS
}

/// Gives out the GPUs, then kills and starts the scheduler.
pub(super) async fn run(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    let claims = claims(testbed.world.nodes);
    let (api, contender) = (testbed.api.clone(), testbed.contender);
    workers::in_parallel(claims, move |number| {
        let api = api.clone();
        async move { run_with_claim(&api, number, contender).await }
    })
    .await?;
    testbed.observer.all_bound("fill", claims, STEP_TIMEOUT).await?;
    testbed.start().await?;
    for number in 0..RESTARTS {
        for (set, request, what) in [
            ("plain", PodRequest::Plain, "a pod without a claim"),
            ("claim", PodRequest::Template(GPU_TEMPLATE), "a pod with a claim"),
        ] {
            let took = first_binding(testbed, set, number, request, STEP_TIMEOUT).await?;
            let what = format!("killed and started: start to the first binding, {what}");
            measured.add_with_goal(what, "s", Goal::Below(3.0), took);
            testbed.quiet().await?;
        }
    }
    let cost = cost::begin(testbed).await?.end(testbed).await?;
    if let Some(memory) = cost.scheduler_memory {
        measured.add("most memory of the scheduler after a restart", "MiB", memory);
    }
    let bound = [("fill", claims), ("plain", RESTARTS), ("claim", RESTARTS)];
    let bound = bound.map(|(set, count)| (set.to_owned(), count..=count));
    let expected = Expected { bound: bound.into(), gangs: BTreeMap::new() };
    validate::check(&testbed.api, contender, testbed.world.gpus, &expected).await
}

/// A running pod with an allocated claim of its user.
async fn run_with_claim(
    api: &crate::scheduler::api::Api,
    number: usize,
    contender: Contender,
) -> anyhow::Result<()> {
    let (name, node) = (format!("fill-{number}"), number / GPUS);
    let claim = api.create(Kind::Claims, &device_objects::gpu_claim(&name)).await?;
    let mut pod = objects::pod(&name, PodRequest::Template(GPU_TEMPLATE), contender);
    pod["spec"]["resourceClaims"] = serde_json::json!([{"name": "gpu", "resourceClaimName": name}]);
    pod["spec"]["nodeName"] = objects::node_name(node).into();
    let uid = raw::uid(&api.create(Kind::Pods, &pod).await?)?;
    let slot = SlottedPod { name: name.clone(), uid, node, gpu: number % GPUS };
    raw::allocate_created(api, &claim, "gpu", &slot).await?;
    api.merge(Kind::Pods, &format!("{name}/status"), &objects::running()).await.map(drop)
}
