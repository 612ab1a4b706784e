//! A cluster whose every GPU is taken by a running pod: gangs that do not fit, preemption of one pod, and
//! a scheduler that starts anew.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::figure::Goal;
use crate::scheduler::api::Kind;
use crate::scheduler::bed::Bed;
use crate::scheduler::contender::Contender;
use crate::scheduler::objects::{self, Ask, GPUS, Near};
use crate::scheduler::observer::{Seen, set_of};
use crate::scheduler::player::Player;
use crate::scheduler::results::Measured;
use crate::scheduler::validate::{self, Expected};
use crate::scheduler::work;

/// Pods of a gang that does not fit; each asks for a whole node.
const GANG: usize = 10;
/// Nodes at least: those whose pods may be preempted, and as many more.
pub(super) const LEAST_NODES: usize = 2 * GANG;
/// One-GPU pods that preempt, one after the other.
const PREEMPTIONS: usize = 10;
/// How often the scheduler is killed and started.
const RESTARTS: usize = 3;
/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(5);
/// The pods that run.
const FILL: &str = "fill";

/// Fills the cluster, then measures one after the other.
pub(super) async fn run(bed: &Bed, measured: &mut Measured) -> anyhow::Result<()> {
    fill(bed).await?;
    bed.start().await?;
    let player = Player::start(&bed.api, &bed.observer, None);
    if bed.contender == Contender::Octavo {
        let what = "10 pods of 8 GPUs, nothing to preempt: last create to the reason";
        let took = impossible(bed, "nofit", "bench-low").await?;
        measured.add_with_goal(what, "s", Goal::Below(1.0), took);
        // Of all pods that ten nodes have, one may not be preempted: nine nodes would not do.
        let what = "10 pods of 8 GPUs, all but one victim allowed: last create to the reason";
        let took = impossible(bed, "almost", "bench-mid").await?;
        measured.add_with_goal(what, "s", Goal::Below(1.0), took);
    }
    preempt(bed, measured).await?;
    restart(bed, measured).await?;
    drop(player);
    let pods = bed.world.nodes * GPUS;
    let bound = [(FILL, pods - PREEMPTIONS), ("top", PREEMPTIONS), ("late", RESTARTS)];
    let bound = bound.map(|(set, count)| (set.to_owned(), count..=count));
    let expected = Expected { bound: bound.into(), gangs: BTreeMap::new() };
    validate::check(&bed.api, bed.contender, bed.world.gpus, &expected).await
}

/// A running one-GPU pod on every GPU. Those of the first ten nodes may be preempted by the gang in the
/// middle, but for one.
async fn fill(bed: &Bed) -> anyhow::Result<()> {
    let pods = bed.world.nodes * GPUS;
    let (api, contender) = (bed.api.clone(), bed.contender);
    work::in_parallel(pods, move |number| {
        let api = api.clone();
        async move {
            let name = format!("{FILL}-{number}");
            let mut pod = objects::pod(&name, Ask::Gpus(1), contender);
            let is_low = number < GANG * GPUS && number != 0;
            pod["spec"]["priorityClassName"] =
                if is_low { "bench-low" } else { "bench-high" }.into();
            pod["spec"]["nodeName"] = objects::node_name(number / GPUS).into();
            api.create(Kind::Pods, &pod).await?;
            api.merge(Kind::Pods, &format!("{name}/status"), &objects::running()).await.map(drop)
        }
    })
    .await?;
    bed.observer.all_bound(FILL, pods, PATIENCE).await.map(drop)
}

/// A gang that cannot be: how long until that is said, in seconds. Nobody may have left for it.
async fn impossible(bed: &Bed, gang: &'static str, priority: &'static str) -> anyhow::Result<f64> {
    let gone_before = bed.observer.seen().gone.len();
    let group = objects::group(gang, GANG, Near::Anywhere);
    bed.api.create(Kind::Groups, &group).await?;
    let (api, contender) = (bed.api.clone(), bed.contender);
    work::in_parallel(GANG, move |number| {
        let api = api.clone();
        async move {
            let mut pod = objects::pod(&format!("{gang}-{number}"), Ask::Gpus(GPUS), contender);
            pod["spec"]["priorityClassName"] = priority.into();
            api.create(Kind::Pods, &objects::member(pod, gang)).await.map(drop)
        }
    })
    .await?;
    let last_create = Instant::now();
    // On the gang itself, or on a pod of it once all are there.
    let said = |seen: &Seen| {
        let of_pods = seen.of(gang).filter_map(|pod| pod.told.as_ref()).map(|told| told.at);
        let of_group = seen.groups.get(gang).map(|told| told.at);
        of_pods.chain(of_group).filter(|at| *at >= last_create).min()
    };
    let told = bed.observer.until(&format!("why {gang} waits"), PATIENCE, said).await?;
    bed.quiet().await?;
    {
        let seen = bed.observer.seen();
        ensure!(seen.bound(gang) == 0, "{} pods of {gang} are bound", seen.bound(gang));
        let left = seen.gone.get(gone_before..).unwrap_or_default();
        let left = left.iter().find(|(name, _)| set_of(name) == FILL);
        ensure!(left.is_none(), "{left:?} had to leave for a gang that does not fit");
    }
    let names: Vec<String> = (0..GANG).map(|number| format!("{gang}-{number}")).collect();
    bed.delete_pods(&names).await?;
    bed.api.delete(Kind::Groups, gang).await?;
    Ok((told - last_create).as_secs_f64())
}

/// Pods of one GPU that all others may leave for, one after the other.
async fn preempt(bed: &Bed, measured: &mut Measured) -> anyhow::Result<()> {
    for number in 0..PREEMPTIONS {
        let name = format!("top-{number}");
        let mut pod = objects::pod(&name, Ask::Gpus(1), bed.contender);
        pod["spec"]["priorityClassName"] = "bench-top".into();
        let began = Instant::now();
        bed.api.create(Kind::Pods, &pod).await?;
        bed.observer.all_bound("top", number + 1, PATIENCE).await?;
        let (bound, left) = {
            let seen = bed.observer.seen();
            let bound = seen.pods.get(&name).and_then(|pod| pod.bound);
            let is_victim = |(name, at): &&(String, Instant)| set_of(name) == FILL && *at >= began;
            let left: Vec<Instant> =
                seen.gone.iter().filter(is_victim).map(|gone| gone.1).collect();
            (bound.context("a pod that preempts went")?, left)
        };
        ensure!(left.len() == 1, "{} pods left for {name}, which needs one GPU", left.len());
        let decided = left.first().context("nobody left")?;
        let what = "preemption of one pod: create to the victim's end, as a watch sees it";
        measured.add_with_goal(
            what,
            "ms",
            Goal::Below(100.0),
            (*decided - began).as_secs_f64() * 1e3,
        );
        let what = "preemption of one pod: create to bound";
        measured.add_with_goal(what, "s", Goal::Below(1.0), (bound - began).as_secs_f64());
        bed.quiet().await?;
    }
    Ok(())
}

/// The scheduler killed and started: how long until it binds a pod that has come meanwhile.
async fn restart(bed: &Bed, measured: &mut Measured) -> anyhow::Result<()> {
    let component = bed.contender.component().context("nobody to start anew")?;
    for number in 0..RESTARTS {
        bed.lab.kill(component).await;
        let pod = objects::pod(&format!("late-{number}"), Ask::Plain, bed.contender);
        bed.api.create(Kind::Pods, &pod).await?;
        let began = Instant::now();
        bed.lab.start(component).await?;
        let bound = bed.observer.all_bound("late", number + 1, PATIENCE).await?;
        let what = "killed and started: start to the first binding";
        measured.add_with_goal(what, "s", Goal::Below(3.0), (bound - began).as_secs_f64());
        bed.quiet().await?;
    }
    Ok(())
}
