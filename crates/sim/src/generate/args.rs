//! The command line of `octavo sim generate`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;

use super::machines::Machine;
use super::mix::Mix;
use super::{Fraction, GenerateError, Load, Options, cluster, lists};
use crate::document::{self, DocumentError, DocumentFormat};

/// The text below the flags in the help.
pub const HELP: &str = "\
The document is marked as synthetic. The same flags and seed give the same bytes.
Kinds of workloads: gang (several whole nodes), node (all GPUs of one node), mig (an instance, if the
model has them), one (one GPU), share (a part of one). Lists have no gangs, tenants and instances.

Examples:
  octavo sim generate --out cluster.yaml
  octavo sim generate --machine gb200-nvl72 --blocks 4 --racks 8 --fill 0.85 --out cluster.json
  octavo sim generate --machine a100-pcie-8,t4-2 --nodes-csv nodes.csv --pods-csv pods.csv --hours 72
  octavo sim replay --nodes nodes.csv --pods pods.csv --departures";

/// Arguments of `octavo sim generate`.
#[derive(Args, Clone, Debug)]
pub struct GenerateArgs {
    /// Blocks; several machines alternate among them
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub blocks: u32,
    /// Racks of a block
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub racks: u32,
    /// Nodes of a rack [default: usual number for the machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub nodes: Option<u32>,
    /// GPUs of a node [default: those of the machine]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub gpus: Option<u16>,
    /// Kinds of machines, one or more
    #[arg(
        long = "machine",
        value_name = "KIND,...",
        value_enum,
        value_delimiter = ',',
        default_value = "h100-8"
    )]
    pub machines: Vec<Machine>,
    /// Allocated part of the GPUs, from 0 to 1
    #[arg(long, value_name = "PART", default_value = "0.7")]
    pub fill: Fraction,
    /// Running workloads, by parts of the allocated GPUs; kinds are gang, node, mig, one and share
    #[arg(
        long,
        value_name = "KIND=PART,...",
        default_value = "gang=35,node=20,mig=5,one=25,share=15"
    )]
    pub mix: Mix,
    /// Tenants
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub tenants: u32,
    /// Waiting gangs
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    pub waiting: u32,
    /// Seed: the same seed gives the same bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the cluster here [default: standard output as YAML, unless a list is written]
    #[arg(long, value_name = "FILE.json|.yaml")]
    pub out: Option<PathBuf>,
    /// Write the empty cluster's node list here
    #[arg(long, value_name = "FILE.csv")]
    pub nodes_csv: Option<PathBuf>,
    /// Write a list of arriving and leaving pods here
    #[arg(long, value_name = "FILE.csv")]
    pub pods_csv: Option<PathBuf>,
    /// Length of the pod list in hours
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub hours: u32,
    /// GPUs that the pod list requests in the long run, as a ratio of all GPUs
    #[arg(long, value_name = "RATIO", default_value_t = 1.0)]
    pub load: f64,
    /// Mean lifetime of a pod of the list in minutes
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub mean_minutes: u32,
}

/// Why `octavo sim generate` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GenerateCommandError {
    /// Nothing was made.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// A file cannot be written.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// Standard output cannot be written.
    #[error("the cluster could not be written")]
    Output(#[from] std::io::Error),
}

impl GenerateCommandError {
    /// Whether the command line makes no sense.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Generate(error) => error.is_usage(),
            Self::Document(error) => error.is_usage(),
            Self::Output(_) => false,
        }
    }
}

impl GenerateArgs {
    /// The options that the flags describe.
    pub fn options(&self) -> Options {
        Options {
            blocks: self.blocks,
            racks: self.racks,
            nodes: self.nodes,
            gpus: self.gpus,
            machines: self.machines.clone(),
            fill: self.fill,
            mix: self.mix.clone(),
            tenants: self.tenants,
            waiting: self.waiting,
            seed: self.seed,
        }
    }
}

/// Runs `octavo sim generate`. Prints one line to `out` for each written file.
pub fn run(args: &GenerateArgs, out: &mut dyn Write) -> Result<(), GenerateCommandError> {
    let options = args.options();
    let form = args.out.as_deref().map(DocumentFormat::of).transpose()?;
    let wants_lists = args.nodes_csv.is_some() || args.pods_csv.is_some();
    if wants_lists {
        let load = Load { hours: args.hours, wanted: args.load, mean_minutes: args.mean_minutes };
        let lists = lists(&options, &load)?;
        if let Some(path) = &args.nodes_csv {
            document::write_text(&lists.nodes, path)?;
            writeln!(out, "{}: {} nodes", path.display(), lists.nodes.lines().count() - 1)?;
        }
        if let Some(path) = &args.pods_csv {
            document::write_text(&lists.pods, path)?;
            writeln!(out, "{}: {} pods in {} h", path.display(), lists.pod_count, args.hours)?;
        }
    }
    match (&args.out, form) {
        (Some(path), Some(form)) => {
            let snapshot = cluster(&options)?;
            document::write_text(&document::text(&snapshot, form)?, path)?;
            let totals = *snapshot.world().map_err(GenerateError::from)?.cluster.totals();
            let all = totals.gpu_milli.max(1);
            let percent = (totals.used_milli * 100 + all / 2) / all;
            writeln!(
                out,
                "{}: synthetic, {} nodes, {} GPUs, {percent} % allocated, {} running workloads, {} \
                 waiting gangs",
                path.display(),
                snapshot.nodes.len(),
                totals.gpus,
                snapshot.running.len(),
                snapshot.waiting.len(),
            )?;
        }
        _ if !wants_lists => {
            let snapshot = cluster(&options)?;
            out.write_all(document::text(&snapshot, DocumentFormat::Yaml)?.as_bytes())?;
        }
        _ => {}
    }
    out.flush()?;
    Ok(())
}
