//! Octavo's scheduler against a real API server, compared with kube-scheduler and with no
//! scheduler.
//!
//! Each turn has its own control plane. Nodes are objects without a kubelet. The contenders
//! alternate within a repeat, so that changes on the machine affect all of them. *Raw* is a client
//! that issues a scheduler's writes without deciding anything. It shows what the API server on this
//! machine can do. A scheduler's result is validated from the API server's objects before its
//! figures are shown.
//!
//! The API server has the same base watches in every turn of a case. These are the controller
//! manager's and the benchmark's own: pods, claims if GPUs are devices, and gangs if the case has
//! any. A scheduler adds its own watches, and raw adds none. Their cost is part of a scheduler's
//! cost.
//!
//! A contender that has not bound all pods within the timeout is measured by the pods bound until
//! then. Its figures are marked, and rates are compared instead of times. For Octavo and for raw,
//! this is a missed goal.
//!
//! `OCTAVO_BENCH_SCALE` (0.1: a tenth) makes every case smaller, for a first look; goals are then
//! meaningless. Progress goes to standard error.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use octavo_figure::{Figure, Report};
use octavo_lab::has_scheduler;

use crate::environment;
use contender::Contender;
use results::{Measured, Results};
use testbed::Testbed;

mod api;
mod baseline;
mod cases;
mod contender;
mod cost;
mod fake_controllers;
mod objects;
mod observer;
mod results;
mod testbed;
mod validate;
mod workers;

/// The variable that makes every case smaller.
const SCALE_VARIABLE: &str = "OCTAVO_BENCH_SCALE";

/// Arguments of this benchmark.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Scheduler")]
#[group(id = "scheduler_options")]
pub(crate) struct Options {
    /// Turns of each contender in each case.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Only these cases.
    #[arg(long, value_delimiter = ',', value_name = "CASE,...")]
    cases: Vec<Case>,
    /// Only these contenders. A case in which none of them takes part is left out.
    #[arg(long, value_delimiter = ',', value_name = "CONTENDER,...")]
    contenders: Vec<Contender>,
    /// Timeout for binding all pods of the cases pods, claims, gpus and gpus-by-devices. A contender that
    /// exceeds it is measured by the pods bound until then [default: 4 for gpus-by-devices, which takes
    /// kube-scheduler far longer; 15 for the others]
    #[arg(long = "patience", value_name = "MINUTES", value_parser = minutes)]
    timeout: Option<Duration>,
}

impl Options {
    /// The contenders of a case that are measured.
    fn contenders_of(&self, case: Case, has_octavo: bool) -> Vec<Contender> {
        let is_asked_for = |contender: &Contender| {
            (self.contenders.is_empty() || self.contenders.contains(contender))
                && (has_octavo || *contender != Contender::Octavo)
        };
        case.contenders().iter().copied().filter(is_asked_for).collect()
    }
}

/// Maximum timeout, in minutes.
const MAX_TIMEOUT_MINUTES: f64 = 120.0;

fn minutes(text: &str) -> Result<Duration, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.0..=MAX_TIMEOUT_MINUTES).contains(minutes));
    match minutes.filter(|minutes| *minutes > 0.0) {
        Some(minutes) => Ok(Duration::from_secs_f64(minutes * 60.0)),
        None => Err(format!("write minutes, above 0 and up to {MAX_TIMEOUT_MINUTES}")),
    }
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
    /// The same with 10,000 pods and 50 gangs that wait, while other pods end.
    Backlog,
    /// 41 gangs for which pods have to move.
    Defragmentation,
}

impl Case {
    const ALL: [Self; 8] = [
        Self::Pods,
        Self::Claims,
        Self::Gpus,
        Self::GpusByDevices,
        Self::Gang,
        Self::Full,
        Self::Backlog,
        Self::Defragmentation,
    ];

    /// The contenders of the case.
    fn contenders(self) -> &'static [Contender] {
        match self {
            Self::Pods | Self::Claims | Self::Gpus | Self::GpusByDevices => {
                &[Contender::Raw, Contender::Kube, Contender::Octavo]
            }
            Self::Gang => &[Contender::Raw, Contender::Octavo],
            Self::Full | Self::Backlog => &[Contender::Kube, Contender::Octavo],
            Self::Defragmentation => &[Contender::Octavo],
        }
    }
}

/// Measures every requested case.
pub(crate) async fn run(octavo: &Path, options: &Options) -> anyhow::Result<Vec<Figure>> {
    let scale = scale()?;
    let has_octavo = has_scheduler(octavo);
    if !has_octavo {
        print_progress(&format!(
            "{} has no scheduler: only the others are measured",
            octavo.display()
        ));
    }
    let is_asked_for = |case: &Case| options.cases.is_empty() || options.cases.contains(case);
    let cases = Case::ALL.into_iter().filter(is_asked_for);
    let cases: Vec<(Case, Vec<Contender>)> = cases
        .map(|case| (case, options.contenders_of(case, has_octavo)))
        .filter(|(_, contenders)| !contenders.is_empty())
        .collect();
    ensure!(!cases.is_empty(), "none of the contenders takes part in any of the cases");
    let mut figures = Vec::new();
    for (case, contenders) in &cases {
        let case = *case;
        let mut results = Results::new(case, scale);
        for number in 1..=options.repeats {
            for &contender in contenders {
                let name = contender.name();
                print_progress(&format!("{case:?}, {name}, {number} of {}", options.repeats));
                let timeout = options.timeout.unwrap_or(case.timeout());
                let turn = Turn { octavo, case, contender, scale, number, timeout };
                if let Err(error) = Box::pin(turn.take(&mut results)).await {
                    print_progress(&format!("{case:?}, {name}: {error:#}"));
                    results.failed(contender, &error);
                }
            }
        }
        let of_case = results.figures()?;
        // The report at the end has all of them.
        if cases.len() > 1 {
            print_figures(case, &of_case);
        }
        figures.extend(of_case);
    }
    Ok(figures)
}

/// One contender's turn in a case.
struct Turn<'a> {
    octavo: &'a Path,
    case: Case,
    contender: Contender,
    scale: f64,
    number: u32,
    timeout: Duration,
}

impl Turn<'_> {
    async fn take(&self, results: &mut Results) -> anyhow::Result<()> {
        let world = cases::world(self.case, self.scale);
        let testbed = Testbed::up(self.octavo, self.contender, world).await?;
        // Measurements are kept only after the whole turn is complete and valid.
        let mut measured = Measured::new(self.contender, self.number);
        let run = cases::run(&testbed, self.case, self.scale, self.timeout, &mut measured);
        let outcome = Box::pin(run).await;
        let down = testbed.down().await;
        outcome.and(down)?;
        results.keep(measured);
        Ok(())
    }
}

fn scale() -> anyhow::Result<f64> {
    let Ok(text) = std::env::var(SCALE_VARIABLE) else { return Ok(1.0) };
    let scale = text.parse().ok().filter(|scale| (0.0..=1.0).contains(scale) && *scale > 0.0);
    scale
        .with_context(|| format!("{SCALE_VARIABLE} is {text:?}, and has to be above 0 and up to 1"))
}

fn print_figures(case: Case, figures: &[Figure]) {
    let report = Report {
        name: format!("scheduler, {case:?}"),
        commit: environment::commit(),
        machine: environment::machine(),
        figures: figures.to_vec(),
    };
    print_progress(&report.table());
}

#[expect(clippy::print_stderr, reason = "a run takes minutes, and its report is standard output")]
fn print_progress(text: &str) {
    eprintln!("{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeout_is_given_in_minutes_and_bounded() {
        assert_eq!(minutes("4"), Ok(Duration::from_mins(4)));
        assert_eq!(minutes("0.5"), Ok(Duration::from_secs(30)));
        for text in ["0", "-1", "121", "NaN", "inf", "soon"] {
            assert!(minutes(text).is_err(), "{text}");
        }
    }
}
