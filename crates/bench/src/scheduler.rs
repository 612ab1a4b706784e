//! Octavo's scheduler against a real API server, compared with kube-scheduler and with no
//! scheduler.
//!
//! Each turn has its own control plane for each contender. Nodes are objects without a kubelet. The
//! contenders of a turn run one after another, and each turn begins with the next one. Changes on
//! the machine therefore affect all of them, and none is always the first. *Raw* is a client that
//! issues a scheduler's writes without deciding anything. It shows what the API server on this
//! machine can do. A scheduler's result is validated from the API server's objects before its
//! figures are shown.
//!
//! Conditions are equal: 32 workers create the pods of every contender. Raw has a thread and a
//! connection of its own and 64 writes in flight, as Octavo's scheduler has. kube-scheduler limits
//! its bindings itself. With `--events same`, the default, all write an event for each bound pod,
//! one after another. The report counts each contender's writes by kind.
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
//! `--scale 0.1` makes every case smaller, for a first look; goals are then meaningless. Progress goes to standard error.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use octavo_figure::{Figure, Report};
use octavo_lab::has_scheduler;

use crate::environment;
use case::Case;
use contender::{Contender, in_order_of_turn};
use results::{Measured, Results};
use testbed::{Events, Testbed};

mod api;
mod case;
mod cases;
mod contender;
mod cost;
mod device_objects;
mod fake_controllers;
mod mig_slices;
mod objects;
mod observer;
mod raw;
mod results;
mod testbed;
mod validate;
mod workers;

/// Arguments of this benchmark.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Scheduler")]
#[group(id = "scheduler_options")]
pub(crate) struct Options {
    /// Turns of each contender in each case.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
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
    /// Events of bound pods.
    #[arg(long, default_value = "same")]
    events: Events,
    /// Size of every case, above 0 and up to 1; below 1 goals are meaningless.
    #[arg(long, env = "OCTAVO_BENCH_SCALE", default_value = "1", value_parser = scale)]
    scale: f64,
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

/// Measures every requested case.
pub(crate) async fn run(octavo: &Path, options: &Options) -> anyhow::Result<Vec<Figure>> {
    let scale = options.scale;
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
            for contender in in_order_of_turn(contenders, number) {
                let name = contender.name();
                print_progress(&format!("{case:?}, {name}, {number} of {}", options.repeats));
                let timeout = options.timeout.unwrap_or(case.timeout());
                let events = options.events;
                let turn = Turn { octavo, case, contender, scale, number, timeout, events };
                if let Err(error) = Box::pin(turn.take(&mut results)).await {
                    print_progress(&format!("{case:?}, {name}: {error:#}"));
                    results.failed(contender, &error);
                }
            }
        }
        for line in results.by_turn() {
            print_progress(&line);
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
    events: Events,
}

impl Turn<'_> {
    async fn take(&self, results: &mut Results) -> anyhow::Result<()> {
        let world = cases::cluster(self.case, self.scale);
        let up = Testbed::up(self.octavo, self.contender, world, self.events);
        let testbed = Box::pin(up).await?;
        // Measurements are kept only after the whole turn is complete and valid.
        let mut measured = Measured::new(self.contender, self.number);
        let run = cases::run(&testbed, self.case, self.scale, self.timeout, &mut measured);
        let outcome = Box::pin(run).await;
        // A scheduler that has ended explains what the case waited for in vain.
        testbed.down().await.and(outcome)?;
        results.keep(measured);
        Ok(())
    }
}

fn scale(text: &str) -> Result<f64, String> {
    let scale = text.parse().ok().filter(|scale| (0.0..=1.0).contains(scale) && *scale > 0.0);
    scale.ok_or_else(|| "write a number above 0 and up to 1".to_owned())
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
    fn scale_is_a_part_of_the_whole() {
        assert_eq!((scale("0.1"), scale("1")), (Ok(0.1), Ok(1.0)));
        for text in ["0", "-1", "1.1", "NaN", "half"] {
            assert!(scale(text).is_err(), "{text}");
        }
    }

    #[test]
    fn timeout_is_given_in_minutes_and_bounded() {
        assert_eq!(minutes("4"), Ok(Duration::from_mins(4)));
        assert_eq!(minutes("0.5"), Ok(Duration::from_secs(30)));
        for text in ["0", "-1", "121", "NaN", "inf", "soon"] {
            assert!(minutes(text).is_err(), "{text}");
        }
    }
}
