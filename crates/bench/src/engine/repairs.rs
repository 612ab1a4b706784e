//! Making room on 500 nodes: gangs admitted by defragmentation, and one pod by preemption.

use std::sync::Arc;

use octavo_engine::{Gang, GpuDemand, World};
use octavo_figure::{Figure, Goal};

use super::clusters;
use super::live::{Decision, LiveEngine, milliseconds};

/// Nodes of eight GPUs.
const NODES: u32 = 500;
/// Gangs that are to be admitted, their members, and GPUs of a member.
const GANGS: u32 = 41;
const MEMBERS: u32 = 10;
const MEMBER_GPUS: u16 = 6;
/// Pods that one decision may move, as in the benchmark of the scheduler.
const MAX_MOVES: u32 = 32;
/// Repetitions.
const REPEATS: usize = 5;

/// Measures both.
pub(super) fn run() -> anyhow::Result<Vec<Figure>> {
    let (mut all, mut worst, mut moves) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        let (sum, longest, moved) = defragment()?;
        all.push(sum);
        worst.push(longest);
        moves.push(moved);
    }
    let (mut yes, mut no) = (Vec::new(), Vec::new());
    for _ in 0..REPEATS {
        yes.push(preempt(10, true)?);
        no.push(preempt(0, false)?);
    }
    let gangs =
        format!("{GANGS} gangs of {MEMBERS} x {MEMBER_GPUS} GPUs on {NODES} nodes in pieces");
    Ok(vec![
        Figure::new(format!("{gangs}: all plans"), "s", &all, Goal::Below(5.0))?,
        Figure::new(format!("{gangs}: longest plan"), "ms", &worst, Goal::None)?,
        Figure::new(format!("{gangs}: pods moved"), "pods", &moves, Goal::None)?,
        Figure::new("one-GPU preemption among 4,000 jobs", "ms", &yes, Goal::Below(100.0))?,
        Figure::new("\"no\" to a preemption of equal priority", "ms", &no, Goal::None)?,
    ])
}

/// Admits the gangs one after another; seconds of all, milliseconds of the longest, pods moved.
fn defragment() -> anyhow::Result<(f64, f64, f64)> {
    // Five of eight one-GPU pods are gone; their positions differ from node to node.
    let mut engine = LiveEngine::new(one_gpu_jobs(|node, gpu| (gpu + node) % 8 < 3)?);
    engine.moves = MAX_MOVES;
    let (mut sum, mut longest, mut moved) = (0.0, 0.0_f64, 0_usize);
    for number in 0..GANGS {
        let shape = clusters::pod(GpuDemand::Whole { count: MEMBER_GPUS });
        let gang = Gang::new(format!("gang-{number}"), (*shape).clone(), MEMBERS);
        let (plan, took) = engine.plan(&gang)?;
        anyhow::ensure!(plan.evictions.is_empty(), "a pod was evicted");
        anyhow::ensure!(plan.placements.len() == MEMBERS as usize, "members are missing");
        moved += plan.moves.len();
        engine.apply(&gang, &plan)?;
        sum += took.as_secs_f64();
        longest = longest.max(milliseconds(took));
    }
    Ok((sum, longest, f64::from(u32::try_from(moved)?)))
}

/// One pod of a priority on a cluster that jobs of priority 0 fill; milliseconds.
fn preempt(priority: i32, is_possible: bool) -> anyhow::Result<f64> {
    let mut engine = LiveEngine::new(one_gpu_jobs(|_, _| true)?);
    let shape = clusters::pod(GpuDemand::Whole { count: 1 });
    let mut gang = Gang::new("urgent", (*shape).clone(), 1);
    gang.profile.priority = priority;
    engine.arrived(&shape);
    let Decision { answer, took } = engine.decide(&gang)?;
    match answer {
        Ok(plan) if is_possible => {
            anyhow::ensure!(plan.evictions.len() == 1, "not one victim");
            engine.apply(&gang, &plan)?;
        }
        Err(_) if !is_possible => {}
        Ok(_) => anyhow::bail!("a pod of equal priority was evicted"),
        Err(refusal) => anyhow::bail!("{}", refusal.reason),
    }
    Ok(milliseconds(took))
}

/// A one-GPU job on each GPU that `is_there` selects, by node and GPU.
fn one_gpu_jobs(is_there: impl Fn(u32, u32) -> bool) -> anyhow::Result<World> {
    let mut world = clusters::empty(NODES, 16)?;
    let shape = clusters::pod(GpuDemand::Whole { count: 1 });
    for node in world.cluster.nodes() {
        for gpu in (0..clusters::GPUS).filter(|gpu| is_there(node.0, u32::from(*gpu))) {
            clusters::run_pod(&mut world, node, clusters::whole_gpu(gpu), Arc::clone(&shape))?;
        }
    }
    Ok(world)
}
