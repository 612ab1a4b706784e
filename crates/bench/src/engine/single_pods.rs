//! Pods that arrive one by one at a cluster that stays half full.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::Context;
use octavo_engine::solve::NodeSet;
use octavo_engine::workload::WorkloadId;
use octavo_engine::{Gang, GpuDemand, Shape};
use octavo_figure::{Figure, Goal, percentile};

use super::clusters::{self, Mix};
use super::live::{LiveEngine, milliseconds};
use crate::split_mix::SplitMix64;

/// Measured decisions, after the same number of unmeasured ones.
const DECISIONS: usize = 20_000;
/// Decisions under another policy.
const OTHER_DECISIONS: usize = 50;

/// Times of decisions in microseconds, sorted.
struct Times {
    /// Different states of nodes at the end.
    states: usize,
    one_gpu: Vec<f64>,
    all: Vec<f64>,
}

/// The large cluster.
pub(super) fn run(nodes: u32) -> anyhow::Result<Vec<Figure>> {
    let mut all = figures(nodes, Mix::Alike, Health::Well, "many equal nodes")?;
    for (health, what) in [
        (Health::Well, "hardly any equal nodes"),
        (Health::Risks, "the same, one GPU in 20 of more risk"),
        (Health::WorkAhead, "the same, work ahead on one node in ten"),
        (Health::WorkAfterEnd, "the same, and the pods end before it on half of them"),
    ] {
        all.extend(figures(nodes, Mix::Varied, health, what)?);
    }
    all.push(other_policy(nodes)?);
    Ok(all)
}

/// What keeps pods from GPUs and nodes that are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    /// Nothing.
    Well,
    /// Some GPUs are of more than the usual risk.
    Risks,
    /// Some nodes have work ahead, and the pods neither end nor yield.
    WorkAhead,
    /// The pods end in time for some of that work. The scheduler names the nodes of the other work with each decision.
    WorkAfterEnd,
}

fn figures(nodes: u32, mix: Mix, health: Health, alike: &str) -> anyhow::Result<Vec<Figure>> {
    let times = measure(nodes, mix, health, DECISIONS)?;
    let states = f64::from(u32::try_from(times.states)?);
    let at = |sorted: &[f64], percent| percentile(sorted, percent).context("no decisions");
    let name = |what: &str| format!("{what}, {nodes} x 8 GPUs half full, {alike}");
    Ok(vec![
        Figure::new(name("states of nodes"), "states", &[states], Goal::None)?,
        Figure::new(
            name("one-GPU decision p50"),
            "us",
            &[at(&times.one_gpu, 50.0)?],
            Goal::Below(50.0),
        )?,
        Figure::new(
            name("one-GPU decision p99"),
            "us",
            &[at(&times.one_gpu, 99.0)?],
            Goal::Below(500.0),
        )?,
        Figure::new(
            name("one-GPU decision worst"),
            "us",
            &[at(&times.one_gpu, 100.0)?],
            Goal::None,
        )?,
        Figure::new(name("any decision p99"), "us", &[at(&times.all, 99.0)?], Goal::None)?,
    ])
}

/// Costs by size: they are to grow more slowly than the number of nodes.
pub(super) fn curve(sizes: &[u32]) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let mut ends: Vec<(u32, f64)> = Vec::new();
    for &nodes in sizes {
        let times = measure(nodes, Mix::Varied, Health::Well, DECISIONS / 4)?;
        let mean = times.all.iter().sum::<f64>() / f64::from(u32::try_from(times.all.len())?);
        ends.push((nodes, mean));
        let what = format!("mean decision, {nodes} nodes");
        figures.push(Figure::new(what, "us", &[mean], Goal::None)?);
    }
    let (Some(first), Some(last)) = (ends.first(), ends.last()) else { return Ok(figures) };
    let growth = (last.1 / first.1) / (f64::from(last.0) / f64::from(first.0));
    let what = format!("growth of cost over growth of nodes, {} to {}", first.0, last.0);
    figures.push(Figure::new(what, "ratio", &[growth], Goal::Below(1.0))?);
    Ok(figures)
}

fn measure(nodes: u32, mix: Mix, health: Health, decisions: usize) -> anyhow::Result<Times> {
    let (mut world, ahead) = match health {
        Health::WorkAhead | Health::WorkAfterEnd => clusters::with_work_ahead(nodes, 16)?,
        Health::Well | Health::Risks => (clusters::empty(nodes, 16)?, NodeSet::new()),
    };
    clusters::fill_half(&mut world, mix)?;
    if health == Health::Risks {
        clusters::add_risks(&mut world)?;
    }
    let mut engine = LiveEngine::new(world);
    let mut shapes = shapes();
    match health {
        Health::Well | Health::Risks => {}
        Health::WorkAhead => {
            for shape in &mut shapes {
                Arc::make_mut(shape).needs = clusters::NO_WORK_AHEAD;
            }
        }
        Health::WorkAfterEnd => engine.forbidden = ahead.into_iter().step_by(2).collect(),
    }
    let mut random = SplitMix64(11);
    let mut running: VecDeque<WorkloadId> = VecDeque::new();
    let mut times = Times { states: 0, one_gpu: Vec::new(), all: Vec::new() };
    for number in 0..2 * decisions {
        // As many pods leave as arrive, in random order.
        if running.len() > nodes as usize / 8 {
            let other = usize::try_from(random.below(running.len() as u64))?;
            let other = running.swap_remove_back(other).context("no pod runs")?;
            engine.end(other)?;
        }
        let shape = &shapes[usize::try_from(random.below(shapes.len() as u64))?];
        engine.arrived(shape);
        let pod = pod(number, shape);
        let (plan, took) = engine.plan(&pod)?;
        if number >= decisions {
            let took = took.as_secs_f64() * 1e6;
            times.all.push(took);
            if shape.gpus == (GpuDemand::Whole { count: 1 }) {
                times.one_gpu.push(took);
            }
        }
        running.push_back(engine.apply(&pod, &plan)?);
    }
    times.states = engine.world.cluster.states().iter().count();
    times.one_gpu.sort_by(f64::total_cmp);
    times.all.sort_by(f64::total_cmp);
    Ok(times)
}

/// One-GPU decisions under a policy that compares the places of a pod in more than packing.
fn other_policy(nodes: u32) -> anyhow::Result<Figure> {
    let mut world = clusters::empty(nodes, 16)?;
    clusters::fill_half(&mut world, Mix::Varied)?;
    let mut engine = LiveEngine::new(world);
    engine.set_policy(&["podsDisturbed", "fairnessDeficit", "gpuMilliStranded"])?;
    engine.waiting = clusters::waiting_gangs();
    let shape = clusters::pod(GpuDemand::Whole { count: 1 });
    let mut times = Vec::new();
    for number in 0..OTHER_DECISIONS {
        let pod = pod(number, &shape);
        let (plan, took) = engine.plan(&pod)?;
        engine.apply(&pod, &plan)?;
        times.push(milliseconds(took));
    }
    let what = "one-GPU decision by fair shares and stranded GPUs, 64 gangs wait";
    Figure::new(format!("{what}, {nodes} nodes half full"), "ms", &times, Goal::None)
}

fn pod(number: usize, shape: &Arc<Shape>) -> Gang {
    Gang::new(format!("pod-{number}"), (**shape).clone(), 1)
}

/// Six in ten ask for one GPU, the others for shares, two, four or eight.
pub(super) fn shapes() -> Vec<Arc<Shape>> {
    let whole = |count| clusters::pod(GpuDemand::Whole { count });
    let share = |milli, memory_mib| clusters::pod(GpuDemand::Share { count: 1, milli, memory_mib });
    let mut shapes = vec![whole(1); 6];
    shapes.extend([share(250, 20_000), share(500, 40_000), whole(2), whole(8)]);
    shapes
}
