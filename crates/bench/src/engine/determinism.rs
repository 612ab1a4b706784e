//! Determinism: the same input gives the same plan. Many runs add the nodes in different orders, on
//! one thread and on two.

use std::fmt::Write;

use anyhow::Context;
use octavo_engine::{Gang, GpuDemand, World};
use octavo_figure::{Figure, Goal};
use sha2::{Digest, Sha256};

use super::clusters::{self, Mix};
use super::live::LiveEngine;
use super::single_pods;
use crate::split_mix::SplitMix64;

/// Runs.
const RUNS: u64 = 100;
/// Nodes and decisions of a run.
const NODES: u32 = 200;
const DECISIONS: u64 = 400;

/// Counts the different outcomes.
pub(super) fn run() -> anyhow::Result<Vec<Figure>> {
    let mut hashes = std::collections::BTreeSet::new();
    for seed in 0..RUNS / 2 {
        hashes.insert(hash(seed)?);
    }
    // Two at a time: runs must not influence each other.
    for seed in (RUNS / 2..RUNS).step_by(2) {
        let both = std::thread::scope(|scope| {
            let threads = [seed, seed + 1].map(|seed| scope.spawn(move || hash(seed)));
            threads.map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a run panicked")))
        });
        for hash in both {
            hashes.insert(hash??);
        }
    }
    let different = f64::from(u32::try_from(hashes.len())?);
    let what = format!("different outcomes of {RUNS} runs, nodes permuted, 1 and 2 threads");
    Ok(vec![Figure::new(what, "hashes", &[different], Goal::Exactly(1.0))?])
}

/// A digest of all decisions of a run. The seed only permutes the nodes.
fn hash(seed: u64) -> anyhow::Result<String> {
    let mut world = clusters::shuffled(NODES, 16, &mut SplitMix64(seed))?;
    clusters::fill_half(&mut world, Mix::Varied)?;
    let mut engine = LiveEngine::new(world);
    let mut random = SplitMix64(3);
    let shapes = single_pods::shapes();
    let mut digest = Sha256::new();
    for number in 0..DECISIONS {
        let shape = &shapes[usize::try_from(random.below(shapes.len() as u64))?];
        engine.arrived(shape);
        let pod = Gang::new(format!("pod-{number}"), (**shape).clone(), 1);
        let Ok(plan) = engine.decide(&pod)?.answer else { continue };
        for placed in &plan.placements {
            note(&mut digest, &engine.world, &placed.placement)?;
        }
        engine.apply(&pod, &plan)?;
    }
    let shape = clusters::pod(GpuDemand::Whole { count: 1 });
    let gang = Gang::new("gang", (*shape).clone(), 40);
    let (plan, _) = engine.plan(&gang)?;
    for placed in &plan.placements {
        note(&mut digest, &engine.world, &placed.placement)?;
    }
    digest.finalize().iter().try_fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").context("write a digest")?;
        Ok(text)
    })
}

fn note(
    digest: &mut Sha256,
    world: &World,
    placement: &octavo_engine::Placement,
) -> anyhow::Result<()> {
    let name = world.cluster.name(placement.node);
    anyhow::ensure!(!name.is_empty(), "a placement names no node");
    digest.update(format!("{name} {:?}\n", placement.gpus));
    Ok(())
}
