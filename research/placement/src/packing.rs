//! openb at 130 % by the published protocol: our policies against the published means and against
//! one another, ten seeds each, every run validated. Then the same shapes as pods that come and go.

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::Context;
use octavo_figure::{Figure, Goal};
use octavo_sim::published;
use octavo_sim::replay::{self, NoObserver, Options, Policy, Popularity, Run};
use octavo_sim::trace::Trace;

use crate::steady;

/// Where the lists are, from the root of the repository.
const DATA: &str = "crates/sim/data/openb";
/// Lists, with the required mean of ten seeds for Octavo's policy, in percent.
const LISTS: [(&str, f64); 5] = [
    ("default", 96.30),
    ("gpushare40", 94.90),
    ("multigpu20", 96.80),
    ("gpuspec10", 96.15),
    ("cpu200", 96.30),
];
/// Seeds of the published runs.
const SEEDS: std::ops::RangeInclusive<i64> = 42..=51;
/// How far FGD may be from its published mean, in points.
const FGD_SLACK: f64 = 0.15;
/// Allowed lag of Octavo's policy behind FGD in first skip, acceptance and allocation at 90 %.
const SLACK: f64 = 0.2;

/// Replays all lists.
pub fn run() -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (list, wanted) in LISTS {
        let nodes = Path::new(DATA).join("openb_node_list_gpu_node.csv");
        let pods = Path::new(DATA).join(format!("openb_pod_list_{list}.csv"));
        let trace = Trace::read(&nodes, &pods).context("run this from the repository's root")?;
        let fgd = runs(&trace, Policy::Fgd, Popularity::Known)?;
        let learned = runs(&trace, Policy::Octavo, Popularity::Learned)?;
        let known = runs(&trace, Policy::Octavo, Popularity::Known)?;
        let best_fit = runs(&trace, Policy::BestFit, Popularity::Learned)?;
        let published = published::mean(list, "fgd").context("no published mean")?;
        let off = (mean(&fgd, binned)? - published).abs();
        let what = |policy: &str, what: &str| format!("{list}: {policy}, {what}");
        figures.push(Figure::new(
            what("fgd", "points off the published mean"),
            "points",
            &[off],
            Goal::Below(FGD_SLACK),
        )?);
        let policies = [
            ("octavo, learning", &learned, true),
            ("octavo, popularity known", &known, false),
            ("fgd", &fgd, false),
            ("best-fit", &best_fit, false),
        ];
        for (policy, runs, is_ours) in policies {
            let at_least = |goal: f64| if is_ours { Goal::Above(goal) } else { Goal::None };
            let final_goal = at_least(wanted);
            figures.push(Figure::new(
                what(policy, "allocated at 130 %"),
                "%",
                &[mean(runs, binned)?],
                final_goal,
            )?);
            let columns: [(&str, Column); 3] = [
                ("first skip", |run| run.metrics.first_skip.unwrap_or(f64::INFINITY) * 100.0),
                ("multi-GPU pods accepted", |run| {
                    run.metrics.accepted_multi_gpu.unwrap_or(1.0) * 100.0
                }),
                ("allocated at 90 %", |run| run.metrics.allocated_at_0_9.unwrap_or(0.0) * 100.0),
            ];
            for (name, column) in columns {
                let goal = at_least(((mean(&fgd, column)? - SLACK) * 100.0).round() / 100.0);
                figures.push(Figure::new(what(policy, name), "%", &[mean(runs, column)?], goal)?);
            }
            let spread: Vec<_> = runs.iter().map(binned).collect();
            figures.push(Figure::new(
                what(policy, "allocated at 130 %, by seed"),
                "%",
                &spread,
                Goal::None,
            )?);
            let idle: Column = |run| run.metrics.idle_gpus;
            figures.push(Figure::new(
                what(policy, "idle GPUs"),
                "GPUs",
                &[mean(runs, idle)?],
                Goal::None,
            )?);
            let fragments: Column =
                |run| run.metrics.fragmentation_at_0_9.map_or(0.0, |f| f.ratio * 100.0);
            figures.push(Figure::new(
                what(policy, "fragmentation at 90 %"),
                "%",
                &[mean(runs, fragments)?],
                Goal::None,
            )?);
            let times: Vec<_> = runs.iter().map(|run| run.times.decision_us_mean).collect();
            figures.push(Figure::new(what(policy, "mean decision"), "us", &times, Goal::None)?);
        }
    }
    figures.extend(steady::run()?);
    Ok(figures)
}

type Column = fn(&Run) -> f64;

/// As the published tables count it, in percent.
fn binned(run: &Run) -> f64 {
    run.metrics.allocated_ratio_published.unwrap_or(run.metrics.allocated_ratio) * 100.0
}

fn runs(trace: &Trace, policy: Policy, popularity: Popularity) -> anyhow::Result<Vec<Run>> {
    let options = Options {
        policies: vec![policy],
        popularity,
        seeds: SEEDS.collect(),
        // One at a time: decisions are timed.
        jobs: NonZeroUsize::MIN,
        ..Options::default()
    };
    let runs = replay::run(trace, &options, &NoObserver)?.runs;
    for run in &runs {
        let wrong = run.violation.as_deref().unwrap_or_default();
        anyhow::ensure!(run.valid, "{policy}, seed {}: {wrong}", run.seed);
        anyhow::ensure!(run.metrics.refused == 0, "{policy} refused a pod that fits");
    }
    Ok(runs)
}

fn mean(runs: &[Run], column: Column) -> anyhow::Result<f64> {
    anyhow::ensure!(!runs.is_empty(), "nothing was run");
    let sum: f64 = runs.iter().map(column).sum();
    Ok(sum / f64::from(u32::try_from(runs.len())?))
}
