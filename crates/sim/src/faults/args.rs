//! The command line of `octavo sim faults`.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::thread;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;

use super::policy::Policy;
use super::published::{self, Reproduction};
use super::runs::{self, Plan};
use super::study::{Study, StudyError};
use super::summary::Summary;
use super::sweep::{self, Axes, CellResult};
use super::{page, table};
use crate::cli::{Format, Seeds};
use crate::document::{self, DocumentError, DocumentFormat};
use crate::output::API_VERSION;

/// The text below the flags in the help.
pub const HELP: &str = "\
Policies differ in the servers that a job gets, in those that are retired, and in how the job goes on
after a failure. Every policy sees the same fleet for a seed.

Examples:
  octavo sim faults run
  octavo sim faults run --study study.yaml --policy octavo,swap-all,fewest-lifetime --seed 1..30
  octavo sim faults sweep --seed 1..30 --page sweep.html
  octavo sim faults reproduce";

/// The text below the flags of `run` and `sweep`.
const STUDY_HELP: &str = "\
A study is YAML or JSON; fields that are missing have defaults:
  job: {servers: 2048, standbys: 16, length: {elapsed: 90d}}
  failures: {perDay: 0.0033, wrongBlame: 0.1}
  lemons: {share: 0.05, factor: 20}
docs/simulator.md lists all fields, examples/sim/faults.yaml is an example.

Figures:
  ettr           computing time that was not lost, of all time
  lost GPU-h     GPU-hours of the job in which it made no progress
  hours          from start to end
  unfinished     runs that never end: too few servers, or failures faster than checkpoints

Exit codes: 0 done, 1 failed or not reproduced, 2 wrong usage.";

/// Arguments of `octavo sim faults`.
#[derive(Args, Clone, Debug)]
pub struct FaultsArgs {
    /// What to do
    #[command(subcommand)]
    pub command: FaultsCommand,
}

/// Subcommands of `octavo sim faults`.
#[derive(Clone, Debug, Subcommand)]
pub enum FaultsCommand {
    /// Compare policies on one study
    #[command(after_help = STUDY_HELP)]
    Run(RunArgs),
    /// Compare policies on a study with other bad servers, wrong blame, spares and false alarms
    #[command(after_help = STUDY_HELP)]
    Sweep(SweepArgs),
    /// Check the simulator against published figures
    Reproduce(ReproduceArgs),
}

/// The runs to make.
#[derive(Args, Clone, Debug)]
pub struct StudyArgs {
    /// The fleet, the job and what fails [default: 2,048 servers for 90 days]
    #[arg(long, value_name = "FILE.yaml|.json")]
    pub study: Option<PathBuf>,
    /// Policies, one or more [default: all]
    #[arg(
        long = "policy",
        visible_alias = "policies",
        value_name = "NAME,...",
        value_enum,
        value_delimiter = ','
    )]
    pub policies: Vec<Policy>,
    /// Threads [default: one for each CPU]. Results do not change
    #[arg(long, short, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Format of the output
    #[arg(
        long,
        short = 'o',
        visible_alias = "output",
        value_name = "FORM",
        value_enum,
        default_value_t
    )]
    pub format: Format,
}

/// Arguments of `octavo sim faults run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// The runs.
    #[command(flatten)]
    pub study: StudyArgs,
    /// Seed, or an inclusive range of seeds such as 1..30; may be repeated
    #[arg(
        long = "seed",
        visible_alias = "seeds",
        value_name = "N|A..B",
        value_delimiter = ',',
        allow_hyphen_values = true,
        default_value = "1..30"
    )]
    pub seeds: Vec<Seeds>,
}

/// Arguments of `octavo sim faults sweep`.
#[derive(Args, Clone, Debug)]
pub struct SweepArgs {
    /// The runs.
    #[command(flatten)]
    pub study: StudyArgs,
    /// Seed, or an inclusive range of seeds such as 1..30; may be repeated
    #[arg(
        long = "seed",
        visible_alias = "seeds",
        value_name = "N|A..B",
        value_delimiter = ',',
        allow_hyphen_values = true,
        default_value = "1..10"
    )]
    pub seeds: Vec<Seeds>,
    /// Shares of failures for which another server is blamed
    #[arg(long, value_name = "SHARE,...", value_delimiter = ',', default_value = "0,0.1,0.2,0.5")]
    pub wrong_blame: Vec<f64>,
    /// Spares of the fleet
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "0,16,64")]
    pub spares: Vec<u32>,
    /// False alarms per server and day
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', default_value = "0,0.002")]
    pub false_alarms: Vec<f64>,
    /// Write a page with curves here
    #[arg(long, value_name = "FILE.html")]
    pub page: Option<PathBuf>,
}

/// Arguments of `octavo sim faults reproduce`.
#[derive(Args, Clone, Debug)]
pub struct ReproduceArgs {
    /// Threads [default: one for each CPU]. Results do not change
    #[arg(long, short, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Format of the output
    #[arg(
        long,
        short = 'o',
        visible_alias = "output",
        value_name = "FORM",
        value_enum,
        default_value_t
    )]
    pub format: Format,
}

/// Why `octavo sim faults` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FaultsError {
    /// A document cannot be read or written.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The study makes no sense.
    #[error("the study makes no sense: {0}")]
    Study(#[from] StudyError),
    /// Figures that differ from the published ones.
    #[error("{missed} of {all} published figures are not reproduced; this is a defect, report it")]
    NotReproduced {
        /// Figures that differ.
        missed: usize,
        /// All figures.
        all: usize,
    },
    /// Standard output cannot be written.
    #[error("the report could not be written")]
    Output(#[from] io::Error),
}

impl FaultsError {
    /// Whether the command line is invalid, independent of the files' content.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Document(error) => error.is_usage(),
            Self::Study(_) | Self::NotReproduced { .. } | Self::Output(_) => false,
        }
    }
}

/// The output of `octavo sim faults run`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunReport<'a> {
    api_version: &'static str,
    kind: &'static str,
    pub(super) study: &'a Study,
    pub(super) seeds: &'a [i64],
    pub(super) policies: &'a [Summary],
}

/// The output of `octavo sim faults sweep`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SweepReport<'a> {
    api_version: &'static str,
    kind: &'static str,
    pub(super) study: &'a Study,
    pub(super) seeds: &'a [i64],
    pub(super) cells: &'a [CellResult],
}

/// The output of `octavo sim faults reproduce`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ReproduceReport<'a> {
    api_version: &'static str,
    kind: &'static str,
    figures: &'a [Reproduction],
}

/// Runs `octavo sim faults`; `command` is the command line, to be shown in a page.
pub fn run(args: &FaultsArgs, command: &str, out: &mut dyn Write) -> Result<(), FaultsError> {
    match &args.command {
        FaultsCommand::Run(args) => compare(args, out),
        FaultsCommand::Sweep(args) => sweep(args, command, out),
        FaultsCommand::Reproduce(args) => reproduce(args, out),
    }
}

fn compare(args: &RunArgs, out: &mut dyn Write) -> Result<(), FaultsError> {
    let study = args.study.read()?;
    let policies = args.study.policies();
    let seeds = Seeds::all(&args.seeds);
    let plans: Vec<Plan<'_>> =
        policies.iter().map(|policy| Plan { study: &study, policy: *policy }).collect();
    let outcomes = runs::run(&plans, &seeds, jobs(args.study.jobs));
    let summary = |(policy, outcomes): (&Policy, &Vec<_>)| Summary::of(*policy, &study, outcomes);
    let summaries: Vec<Summary> = policies.iter().zip(&outcomes).map(summary).collect();
    let report = RunReport {
        api_version: API_VERSION,
        kind: "Faults",
        study: &study,
        seeds: &seeds,
        policies: &summaries,
    };
    write(args.study.format, &report, || table::run(&report), out)
}

fn sweep(args: &SweepArgs, command: &str, out: &mut dyn Write) -> Result<(), FaultsError> {
    let study = args.study.read()?;
    let seeds = Seeds::all(&args.seeds);
    let axes = Axes {
        wrong_blame: args.wrong_blame.clone(),
        lemons: sweep::LEMONS.to_vec(),
        spares: args.spares.clone(),
        false_alarms: args.false_alarms.clone(),
    };
    let cells = sweep::run(&study, &axes, &args.study.policies(), &seeds, jobs(args.study.jobs))?;
    let report = SweepReport {
        api_version: API_VERSION,
        kind: "FaultsSweep",
        study: &study,
        seeds: &seeds,
        cells: &cells,
    };
    if let Some(path) = &args.page {
        document::write_text(&page::page(&report, command), path)?;
    }
    write(args.study.format, &report, || table::sweep(&report), out)
}

fn reproduce(args: &ReproduceArgs, out: &mut dyn Write) -> Result<(), FaultsError> {
    let jobs = jobs(args.jobs);
    let one = |case: &published::Case| published::reproduce(case, case.seeds, jobs);
    let figures: Vec<Reproduction> = published::all().iter().map(one).collect();
    let report =
        ReproduceReport { api_version: API_VERSION, kind: "FaultsReproduction", figures: &figures };
    write(args.format, &report, || table::reproduction(&figures), out)?;
    match figures.iter().filter(|figure| !figure.is_reproduced).count() {
        0 => Ok(()),
        missed => Err(FaultsError::NotReproduced { missed, all: figures.len() }),
    }
}

impl StudyArgs {
    fn read(&self) -> Result<Study, FaultsError> {
        let study = match &self.study {
            Some(path) => document::read(path, "study of faults")?,
            None => Study::default(),
        };
        study.check()?;
        Ok(study)
    }

    /// Each once, in order of mention.
    fn policies(&self) -> Vec<Policy> {
        if self.policies.is_empty() {
            return Policy::value_variants().to_vec();
        }
        let mut policies = Vec::new();
        for policy in &self.policies {
            if !policies.contains(policy) {
                policies.push(*policy);
            }
        }
        policies
    }
}

fn jobs(wanted: Option<NonZeroUsize>) -> NonZeroUsize {
    let all_cpus = || thread::available_parallelism().ok();
    wanted.or_else(all_cpus).unwrap_or(NonZeroUsize::MIN)
}

fn write(
    format: Format,
    report: &impl Serialize,
    table: impl FnOnce() -> String,
    out: &mut dyn Write,
) -> Result<(), FaultsError> {
    let text = match format {
        Format::Table => table(),
        Format::Json => document::text(report, DocumentFormat::Json)?,
    };
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests;
