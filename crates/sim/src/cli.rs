//! The command line of `octavo sim`.

mod runs;
mod seeds;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::generate::args::GenerateArgs;
use crate::report::args::ReportArgs;
use crate::whatif::args::{VerifyArgs, WhatifArgs};

pub use runs::{Inflate, RunsArgs};
pub use seeds::Seeds;

/// Arguments of `octavo sim`.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// What to do
    #[command(subcommand)]
    pub command: SimCommand,
}

/// Subcommands of the simulator.
#[derive(Clone, Debug, Subcommand)]
pub enum SimCommand {
    /// Replay a trace of a whole cluster under one or more policies
    ///
    /// Pods come one by one. Each is placed by the policy or, if it finds no place, skipped: nobody
    /// waits, nobody is tried again. Every run is checked by a validator that shares no code with
    /// the policies.
    #[command(after_help = "\
The lists are CSV with a line of column names, in the form of openb:
  nodes  sn,cpu_milli,memory_mib,gpu,model
  pods   name,cpu_milli,memory_mib,num_gpu,gpu_milli and, if there,
         gpu_spec (models that will do, with | between), creation_time, deletion_time

Figures (ratios of 1 in JSON, percent in tables):
  allocated    GPUs given out after the last arrival
  published    the mean over all arrivals at 130 % demand, as the published tables count
  first skip   demand at which the first GPU pod that names no model found no place
  at 90 %      GPUs given out when 90 % of them were first wanted
  multi        pods of several GPUs that were placed
  hash         SHA-256 over all placements: equal if two runs did the same

Exit codes: 0 done, 1 failed or a run is not valid, 2 wrong usage.

Examples:
  octavo sim replay --nodes nodes.csv --pods pods.csv
  octavo sim replay --nodes nodes.csv --pods pods.csv --policy fgd,octavo --seed 42..51
  octavo sim replay --nodes nodes.csv --pods pods.csv --departures --format json
  octavo sim replay --nodes nodes.csv --pods pods.csv --curve curve.csv --placements where.csv")]
    Replay(Box<ReplayArgs>),

    /// Make one HTML page of a replay: curves, figures, what it was made from
    #[command(after_help = crate::report::args::HELP)]
    Report(Box<ReportArgs>),

    /// Make a synthetic cluster: topology, tenants, what runs and what waits; or lists for a replay
    #[command(after_help = crate::generate::args::HELP)]
    Generate(Box<GenerateArgs>),

    /// Ask whether a gang would fit, and what would make it fit. Nothing changes
    #[command(after_help = crate::whatif::args::HELP)]
    Whatif(Box<WhatifArgs>),

    /// Ask a recorded question again and compare the answers bit for bit
    Verify(VerifyArgs),
}

/// Arguments of `octavo sim replay`.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// List of nodes
    #[arg(long, value_name = "FILE")]
    pub nodes: PathBuf,
    /// List of pods
    #[arg(long, value_name = "FILE")]
    pub pods: PathBuf,
    /// The runs.
    #[command(flatten)]
    pub runs: RunsArgs,
    /// DocumentFormat of the output
    #[arg(
        long,
        short = 'o',
        visible_alias = "output",
        value_name = "FORM",
        value_enum,
        default_value_t
    )]
    pub format: Format,
    /// Write the curve of each run: demand, GPUs given out, fragmentation
    #[arg(long, value_name = "FILE.csv")]
    pub curve: Option<PathBuf>,
    /// Write where each pod of each run went
    #[arg(long, value_name = "FILE.csv")]
    pub placements: Option<PathBuf>,
}

/// A form of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A line for each run, then mean and spread over the seeds
    #[default]
    Table,
    /// JSON, versioned
    Json,
}
