//! A cluster with a running pod on every GPU: gangs that do not fit, preemption for one pod, and a
//! restarted scheduler.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use octavo_figure::Goal;

use super::fill::run_on_nodes;
use super::restart::first_binding;
use crate::scheduler::api::Kind;
use crate::scheduler::fake_controllers::{Endings, FakeControllers};
use crate::scheduler::objects::{self, GPUS, PodRequest, TopologyRequest};
use crate::scheduler::observer::{ObservedState, set_of};
use crate::scheduler::results::Measured;
use crate::scheduler::testbed::Testbed;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::workers;

/// Pods of a gang that does not fit; each requests a whole node.
const GANG: usize = 10;
/// Minimum nodes: those with preemptible pods, and the same number again.
pub(super) const MIN_NODES: usize = 2 * GANG;
/// One-GPU pods that preempt, one after the other.
const PREEMPTIONS: usize = 10;
/// How often the scheduler is killed and started.
const RESTARTS: usize = 3;
/// Timeout of each step.
const STEP_TIMEOUT: Duration = Duration::from_mins(5);
/// The pods that run.
const FILL: &str = "fill";

/// Fills the cluster, then measures one after the other.
pub(super) async fn run(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    fill(testbed).await?;
    testbed.start().await?;
    let controllers =
        FakeControllers::start(&testbed.api, &testbed.observer, Endings::default(), None);
    if testbed.contender.is_octavo() {
        let what = "10 pods of 8 GPUs, nothing to preempt: last create to the reason";
        let took = impossible(testbed, "nofit", "bench-low").await?;
        measured.add_with_goal(what, "s", Goal::Below(1.0), took);
        // Of all pods that ten nodes have, one may not be preempted: nine nodes would not do.
        let what = "10 pods of 8 GPUs, all but one victim allowed: last create to the reason";
        let took = impossible(testbed, "almost", "bench-mid").await?;
        measured.add_with_goal(what, "s", Goal::Below(1.0), took);
    }
    preempt(testbed, measured).await?;
    restart(testbed, measured).await?;
    drop(controllers);
    let pods = testbed.world.nodes * GPUS;
    let bound = [(FILL, pods - PREEMPTIONS), ("top", PREEMPTIONS), ("late", RESTARTS)];
    let bound = bound.map(|(set, count)| (set.to_owned(), count..=count));
    let expected = Expected { bound: bound.into(), gangs: BTreeMap::new() };
    validate::check(&testbed.api, testbed.contender, testbed.world.gpus, &expected).await
}

/// A running one-GPU pod on every GPU. Those of the first ten nodes may be preempted by the gang in the
/// middle, but for one.
async fn fill(testbed: &Testbed) -> anyhow::Result<()> {
    let contender = testbed.contender;
    let pod = move |name: &str, number: usize| {
        let mut pod = objects::pod(name, PodRequest::Gpus(1), contender);
        let is_low = number < GANG * GPUS && number != 0;
        pod["spec"]["priorityClassName"] = if is_low { "bench-low" } else { "bench-high" }.into();
        (pod, number / GPUS)
    };
    run_on_nodes(testbed, FILL, testbed.world.nodes * GPUS, pod).await
}

/// Creates an impossible gang. Returns the seconds until the refusal is reported. No pod may be
/// evicted for it.
async fn impossible(
    testbed: &Testbed,
    gang: &'static str,
    priority: &'static str,
) -> anyhow::Result<f64> {
    let gone_before = testbed.observer.seen().gone.len();
    let group = objects::group(gang, GANG, TopologyRequest::Anywhere);
    testbed.api.create(Kind::Groups, &group).await?;
    let (api, contender) = (testbed.api.clone(), testbed.contender);
    workers::in_parallel(GANG, move |number| {
        let api = api.clone();
        async move {
            let mut pod =
                objects::pod(&format!("{gang}-{number}"), PodRequest::Gpus(GPUS), contender);
            pod["spec"]["priorityClassName"] = priority.into();
            api.create(Kind::Pods, &objects::member(pod, gang)).await.map(drop)
        }
    })
    .await?;
    let last_create = Instant::now();
    // On the gang itself, or on a pod of it once all are there.
    let reason_seen = |seen: &ObservedState| {
        let of_pods = seen.of(gang).filter_map(|pod| pod.waiting.as_ref()).map(|reason| reason.at);
        let of_group = seen.groups.get(gang).map(|reason| reason.at);
        of_pods.chain(of_group).filter(|at| *at >= last_create).min()
    };
    let explained =
        testbed.observer.until(&format!("why {gang} waits"), STEP_TIMEOUT, reason_seen).await?;
    testbed.quiet().await?;
    {
        let seen = testbed.observer.seen();
        ensure!(seen.bound(gang) == 0, "{} pods of {gang} are bound", seen.bound(gang));
        let left = seen.gone.get(gone_before..).unwrap_or_default();
        let left = left.iter().find(|(name, _)| set_of(name) == FILL);
        ensure!(left.is_none(), "{left:?} was evicted for a gang that does not fit");
    }
    let names: Vec<String> = (0..GANG).map(|number| format!("{gang}-{number}")).collect();
    testbed.delete_pods(&names).await?;
    testbed.api.delete(Kind::Groups, gang).await?;
    Ok((explained - last_create).as_secs_f64())
}

/// Pods of one GPU that all others may leave for, one after the other.
async fn preempt(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    for number in 0..PREEMPTIONS {
        let name = format!("top-{number}");
        let mut pod = objects::pod(&name, PodRequest::Gpus(1), testbed.contender);
        pod["spec"]["priorityClassName"] = "bench-top".into();
        let began = Instant::now();
        testbed.api.create(Kind::Pods, &pod).await?;
        testbed.observer.all_bound("top", number + 1, STEP_TIMEOUT).await?;
        let (bound, left) = {
            let seen = testbed.observer.seen();
            let bound = seen.pods.get(&name).and_then(|pod| pod.bound);
            let is_victim = |(name, at): &&(String, Instant)| set_of(name) == FILL && *at >= began;
            let left: Vec<Instant> =
                seen.gone.iter().filter(is_victim).map(|gone| gone.1).collect();
            (bound.context("a pod that preempts went")?, left)
        };
        ensure!(
            left.len() == 1,
            "{} pods were evicted for {name}, which needs one GPU",
            left.len()
        );
        let decided = left.first().context("no pod was evicted")?;
        let what = "preemption of one pod: create to the victim's end, as a watch sees it";
        measured.add_with_goal(
            what,
            "ms",
            Goal::Below(100.0),
            (*decided - began).as_secs_f64() * 1e3,
        );
        let what = "preemption of one pod: create to bound";
        measured.add_with_goal(what, "s", Goal::Below(1.0), (bound - began).as_secs_f64());
        testbed.quiet().await?;
    }
    Ok(())
}

/// Kills and starts the scheduler. Measures the time until it binds a pod that was created in
/// between.
async fn restart(testbed: &Testbed, measured: &mut Measured) -> anyhow::Result<()> {
    for number in 0..RESTARTS {
        let took = first_binding(testbed, "late", number, PodRequest::Plain, STEP_TIMEOUT).await?;
        let what = "killed and started: start to the first binding";
        measured.add_with_goal(what, "s", Goal::Below(3.0), took);
        testbed.quiet().await?;
    }
    Ok(())
}
