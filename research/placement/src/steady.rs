//! Pods that come and go for long: how much of the GPU time that they want do policies give?
//!
//! ```text
//! shapes of a list --draws--> arrivals, log-normal lives --> replay by each policy --> part of the GPU time given
//! ```
//!
//! The cluster starts with as many pods as it has in the long run, so demand is stationary from the
//! first second. A pod without a placement is lost. Time counts once the policies have replaced most
//! of the first pods.

mod shapes;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use octavo_figure::{Figure, Goal};
use octavo_sim::arrivals::{Arrivals, Order};
use octavo_sim::generate::random::Random;
use octavo_sim::replay::{self, Entry, Policy, Popularity, Setup};
use octavo_sim::trace::{NodeRow, PodRow, Trace};
use octavo_sim::trace_cluster;

pub use shapes::{Workload, workloads};

/// GPUs requested in the long run, as ratios of all GPUs.
pub const LOADS: [f64; 2] = [0.95, 1.1];
/// Seeds of nodes, shapes and lives.
pub const SEEDS: std::ops::RangeInclusive<u64> = 1..=10;
/// Policies to compare; the first is ours.
pub const POLICIES: [Policy; 4] = [Policy::Octavo, Policy::Fgd, Policy::BestFit, Policy::Packing];
/// How far ours may be below the best of the others, in points.
const SLACK: f64 = 0.3;
/// Nodes, drawn from those of the list.
const NODES: usize = 150;
/// Mean life of a pod in seconds.
const MEAN_LIFE: f64 = 100_000.0;
/// Spread of the logarithm of lives: half of all pods live for less than a third of the mean.
const SIGMA: f64 = 1.5;
/// Seconds before time counts, and in all.
const WARM_UP: u64 = 400_000;
const END: u64 = 1_200_000;

/// Replays all workloads.
pub fn run() -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for workload in workloads()? {
        for load in LOADS {
            let traces: Vec<Trace> = SEEDS.map(|seed| trace(&workload, load, seed)).collect();
            let mut means = Vec::new();
            let mut all = Vec::new();
            for policy in POLICIES {
                let given: Vec<f64> = traces
                    .iter()
                    .map(|trace| given(trace, policy))
                    .collect::<anyhow::Result<_>>()?;
                means.push(mean(&given));
                all.push((policy, given));
            }
            let best = means.iter().skip(1).copied().fold(0.0, f64::max);
            for (policy, given) in all {
                let is_ours = policy == POLICIES[0];
                let name = format!("{}, load {load}: {policy}, GPU time given", workload.name);
                let goal = Goal::Above(((best - SLACK) * 100.0).round() / 100.0);
                let goal = if is_ours { goal } else { Goal::None };
                figures.push(Figure::new(name.clone(), "%", &[mean(&given)], goal)?);
                figures.push(Figure::new(name + ", by seed", "%", &given, Goal::None)?);
            }
        }
    }
    Ok(figures)
}

/// A workload's nodes and pods, with times, at this load.
pub fn trace(workload: &Workload, load: f64, seed: u64) -> Trace {
    let nodes = nodes(&workload.nodes, seed);
    let capacity: u64 = nodes.iter().map(NodeRow::gpu_milli).sum();
    let wanted: u64 = workload.shapes.iter().map(PodRow::total_gpu_milli).sum();
    // Little's law: pods at a time are the rate times the mean life.
    let pods = load * float(capacity) * float(workload.shapes.len() as u64) / float(wanted.max(1));
    let mut random = Random::new(seed, "steady");
    let mut trace = Trace { nodes, pods: Vec::new() };
    let mut add = |random: &mut Random, at: f64, life: f64| {
        let shape = &workload.shapes[random.index(workload.shapes.len())];
        let (created, name) = (whole(at), format!("pod-{:06}", trace.pods.len()));
        let deleted = Some(whole(at + life).max(created + 1).min(END));
        let created = Some(created);
        let pod = PodRow { name, creation_time: created, deletion_time: deleted, ..shape.clone() };
        trace.pods.push(pod);
    };
    for _ in 0..whole(pods) {
        // Who looks at any moment sees pods in proportion to their lives, somewhere in them.
        let life = random.log_normal(MEAN_LIFE * (SIGMA * SIGMA).exp(), SIGMA) * random.unit();
        add(&mut random, 0.0, life);
    }
    let mut now = 0.0;
    loop {
        now += random.exponential(MEAN_LIFE / pods);
        if whole(now) >= END {
            return trace;
        }
        let life = random.log_normal(MEAN_LIFE, SIGMA);
        add(&mut random, now, life);
    }
}

/// GPU time that a policy gives of that wanted after the warm-up, in percent. FGD gets the shapes of
/// all pods in advance, as it is published.
pub fn given(trace: &Trace, policy: Policy) -> anyhow::Result<f64> {
    let shapes = trace_cluster::shapes(trace);
    let typical = Arc::new(trace_cluster::typical(trace, &shapes));
    let popularity = Popularity::Learned;
    let setup = Setup { shapes: &shapes, typical: &typical, seed: 1, popularity };
    let arrivals = Arrivals::of(trace, Order::ByCreationTime)?;
    let result = replay::replay_with(trace, &arrivals, true, &mut *policy.build(&setup)?)?;
    result.verdict.map_err(|violation| anyhow::anyhow!(violation))?;
    let (mut wanted, mut given) = (0, 0);
    for entry in &result.log.entries {
        let Entry::Arrived { pod, place } = entry else { continue };
        let row = &trace.pods[arrivals.pods[*pod].row];
        let (Some(from), Some(to)) = (row.creation_time, row.deletion_time) else { continue };
        let time = row.total_gpu_milli() * to.saturating_sub(from.max(WARM_UP));
        wanted += time;
        given += if place.is_some() { time } else { 0 };
    }
    anyhow::ensure!(wanted > 0, "no pod wants GPUs");
    Ok(float(given) / float(wanted) * 100.0)
}

fn nodes(all: &[NodeRow], seed: u64) -> Vec<NodeRow> {
    let mut nodes = all.to_vec();
    Random::new(seed, "nodes").shuffle(&mut nodes);
    nodes.truncate(NODES);
    nodes
}

/// The mean; 0 of nothing.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / float(values.len().max(1) as u64)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn whole(amount: f64) -> u64 {
    amount.clamp(0.0, 1e9) as u64
}

#[expect(clippy::cast_precision_loss, reason = "a figure to read")]
fn float(count: u64) -> f64 {
    count as f64
}
