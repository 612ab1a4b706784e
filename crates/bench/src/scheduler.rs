//! Octavo's scheduler against a real API server, beside Kubernetes' own and beside no scheduler at all.
//!
//! Each turn has a control plane of its own; nodes are objects that nobody but the benchmark is
//! behind. The contenders take turns within a repeat, so that what changes on the machine hits all. *Raw* is a client
//! that issues the writes a scheduler would, with the same watches open and nothing to decide: what the
//! API server on this machine can do. What a scheduler did is checked from the API server's objects
//! before any figure of it is shown.
//!
//! `OCTAVO_BENCH_SCALE` (0.1: a tenth) makes every case smaller, for a look; goals mean nothing then.
//! How far it is goes to standard error.

use std::path::Path;

use anyhow::Context;
use clap::ValueEnum;
use octavo_lab::has_scheduler;

use crate::figure::{Figure, Report};
use crate::place;
use bed::Bed;
use contender::Contender;
use results::{Measured, Results};

mod api;
mod bed;
mod cases;
mod contender;
mod cost;
mod objects;
mod observer;
mod player;
mod raw;
mod results;
mod validate;
mod work;

/// The variable that makes every case smaller.
const SCALE_VARIABLE: &str = "OCTAVO_BENCH_SCALE";

/// Arguments of this benchmark.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Scheduler")]
#[group(id = "scheduler_options")]
pub(crate) struct Options {
    /// How often each contender has its turn in each case.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Only these cases.
    #[arg(long, value_delimiter = ',', value_name = "CASE,...")]
    cases: Vec<Case>,
}

/// A case, or several that one cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Case {
    /// 5,000 plain pods on 1,000 nodes.
    Pods,
    /// 800 claims made from a template on 100 nodes of 8 GPUs.
    Claims,
    /// 4,000 pods with nvidia.com/gpu: 1 on 500 nodes that offer 8 as an amount.
    Gpus,
    /// The same where the GPUs are devices in slices.
    GpusByDevices,
    /// A gang of 512 pods on 512 nodes.
    Gang,
    /// On 500 nodes with 4,000 running pods: gangs that do not fit, preemption, restart.
    Full,
    /// 41 gangs for which pods have to move.
    Defragmentation,
}

impl Case {
    const ALL: [Self; 7] = [
        Self::Pods,
        Self::Claims,
        Self::Gpus,
        Self::GpusByDevices,
        Self::Gang,
        Self::Full,
        Self::Defragmentation,
    ];

    /// Who takes part.
    fn contenders(self) -> &'static [Contender] {
        match self {
            Self::Pods | Self::Claims | Self::Gpus | Self::GpusByDevices => {
                &[Contender::Raw, Contender::Kube, Contender::Octavo]
            }
            Self::Gang => &[Contender::Raw, Contender::Octavo],
            Self::Full => &[Contender::Kube, Contender::Octavo],
            Self::Defragmentation => &[Contender::Octavo],
        }
    }
}

/// Measures every case that was asked for.
pub(crate) async fn run(octavo: &Path, options: &Options) -> anyhow::Result<Vec<Figure>> {
    let scale = scale()?;
    let has_octavo = has_scheduler(octavo);
    if !has_octavo {
        tell(&format!("{} has no scheduler: only the others are measured", octavo.display()));
    }
    let mut figures = Vec::new();
    for case in Case::ALL {
        if !options.cases.is_empty() && !options.cases.contains(&case) {
            continue;
        }
        let mut results = Results::new(case, scale);
        for repeat in 1..=options.repeats {
            for &contender in case.contenders() {
                if contender == Contender::Octavo && !has_octavo {
                    continue;
                }
                let who = contender.name();
                tell(&format!("{case:?}, {who}, {repeat} of {}", options.repeats));
                let turn = Box::pin(turn(octavo, case, contender, scale, &mut results)).await;
                if let Err(error) = turn {
                    tell(&format!("{case:?}, {who}: {error:#}"));
                    results.failed(contender, &error);
                }
            }
        }
        let of_case = results.figures()?;
        tell_figures(case, &of_case);
        figures.extend(of_case);
    }
    Ok(figures)
}

async fn turn(
    octavo: &Path,
    case: Case,
    contender: Contender,
    scale: f64,
    results: &mut Results,
) -> anyhow::Result<()> {
    let bed = Bed::up(octavo, contender, cases::world(case, scale)).await?;
    // What is measured is only kept once all of it is there and valid.
    let mut measured = Measured::new(contender);
    let outcome = Box::pin(cases::run(&bed, case, scale, &mut measured)).await;
    let down = bed.down().await;
    outcome.and(down)?;
    results.keep(measured);
    Ok(())
}

fn scale() -> anyhow::Result<f64> {
    let Ok(text) = std::env::var(SCALE_VARIABLE) else { return Ok(1.0) };
    let scale = text.parse().ok().filter(|scale| (0.0..=1.0).contains(scale) && *scale > 0.0);
    scale
        .with_context(|| format!("{SCALE_VARIABLE} is {text:?}, and has to be above 0 and up to 1"))
}

fn tell_figures(case: Case, figures: &[Figure]) {
    let report = Report {
        name: format!("scheduler, {case:?}"),
        commit: place::commit(),
        machine: place::machine(),
        figures: figures.to_vec(),
    };
    tell(&report.table());
}

#[expect(clippy::print_stderr, reason = "a run takes minutes, and its report is standard output")]
fn tell(text: &str) {
    eprintln!("{text}");
}
