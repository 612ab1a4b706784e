//! The engine on clusters of up to 25,000 nodes: decisions, gangs, refusals, memory, and whether
//! the same input gives the same plan. No cluster is needed.
//!
//! All decisions go through the planner of the live scheduler.

mod clusters;
mod determinism;
mod exhaustive;
mod gangs;
mod live;
mod repairs;
mod single_pods;

use anyhow::Context;
use octavo_figure::{Figure, Goal};

/// Nodes of the large cluster: 100,000 GPUs.
const NODES: u32 = 12_500;
/// Sizes for the curve of costs.
const CURVE: [u32; 5] = [1_250, 2_500, 5_000, 12_500, 25_000];

/// Measures everything.
pub(crate) fn run() -> anyhow::Result<Vec<Figure>> {
    let mut figures = single_pods::run(NODES)?;
    figures.extend(gangs::large(NODES)?);
    // Before the curve, which has a larger cluster.
    figures.push(peak_memory()?);
    figures.extend(single_pods::curve(&CURVE)?);
    figures.extend(gangs::kueue_shapes()?);
    figures.extend(gangs::against_exact()?);
    figures.extend(repairs::run()?);
    figures.extend(determinism::run()?);
    Ok(figures)
}

fn peak_memory() -> anyhow::Result<Figure> {
    let status = std::fs::read_to_string("/proc/self/status").context("read /proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.strip_suffix(" kB"));
    let kib: f64 = peak.context("no VmHWM")?.trim().parse()?;
    let what = format!("peak memory of the process with {NODES} nodes");
    Figure::new(what, "MiB", &[kib / 1024.0], Goal::Below(1024.0))
}
