//! The command line of `octavo sim`.

mod runs;
mod seeds;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::faults::args::FaultsArgs;
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
    /// Pods arrive one by one. The policy places or skips each pod. Skipped pods do not wait and are
    /// not retried. A validator that shares no code with the policies checks every run.
    #[command(after_help = "\
The lists are CSV with a line of column names, in the format of openb:
  nodes  sn,cpu_milli,memory_mib,gpu,model
  pods   name,cpu_milli,memory_mib,num_gpu,gpu_milli and, if there,
         gpu_spec (accepted models, separated by |), creation_time, deletion_time

Figures (ratios of 1 in JSON, percent in tables):
  allocated    allocated GPUs after the last arrival
  published    mean over all arrivals at 130 % demand, by the rule of the published tables
  first skip   demand at which the first GPU pod without a named model was skipped
  at 90 %      allocated GPUs when the demand first reached 90 %
  multi        placed pods of several GPUs
  hash         SHA-256 over all placements: equal if two runs did the same

Exit codes: 0 done, 1 failed or a run is invalid, 2 wrong usage.

Examples:
  octavo sim replay --nodes nodes.csv --pods pods.csv
  octavo sim replay --nodes nodes.csv --pods pods.csv --policy fgd,octavo --seed 42..51
  octavo sim replay --nodes nodes.csv --pods pods.csv --departures --format json
  octavo sim replay --nodes nodes.csv --pods pods.csv --curve curve.csv --placements where.csv")]
    Replay(Box<ReplayArgs>),

    /// Make one HTML page of a replay: curves, figures and inputs
    #[command(after_help = crate::report::args::HELP)]
    Report(Box<ReportArgs>),

    /// Generate a synthetic cluster with topology, tenants, running workloads and waiting gangs; or lists for
    /// a replay
    #[command(after_help = crate::generate::args::HELP)]
    Generate(Box<GenerateArgs>),

    /// Check whether a gang would fit, and what would make it fit. Changes nothing
    #[command(after_help = crate::whatif::args::HELP)]
    Whatif(Box<WhatifArgs>),

    /// Simulate a job on servers that fail, under several health policies
    #[command(after_help = crate::faults::args::HELP)]
    Faults(Box<FaultsArgs>),

    /// Repeat a recorded question and compare the answers bit for bit
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
    /// Write the curve of each run: demand, allocated GPUs, fragmentation
    #[arg(long, value_name = "FILE.csv")]
    pub curve: Option<PathBuf>,
    /// Write the placement of each pod of each run
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
