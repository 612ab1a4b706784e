//! Benchmarks of the programs, most of them against a real control plane.
//!
//! `cargo xtask bench NAME` builds the measured programs and starts this program.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap::{Parser, ValueEnum};
use octavo_figure::{Figure, Report, environment};
use octavo_lab::Lab;
use octavo_research::{mig_order, packing};

use crate::lab_dir::LabDir;

mod agent;
mod agent_process;
mod api_server;
mod claims;
mod domains;
mod driver;
mod engine;
mod health;
mod hook;
mod kubelet;
mod lab;
mod lab_dir;
mod memory_enforcement;
mod mig;
mod operator;
mod pods;
mod process;
mod real_share;
mod scheduler;
mod signals;
mod slices;
mod split_mix;
mod time_enforcement;

/// Benchmarks of Octavo.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Args {
    /// What to measure.
    name: Name,
    /// Format of the report.
    #[arg(long, default_value = "table")]
    format: Format,
    /// The binary to measure.
    #[arg(long, default_value = "target/release/octavo")]
    octavo: PathBuf,
    #[command(flatten)]
    real_share: real_share::Options,
    #[command(flatten)]
    scheduler: scheduler::Options,
    #[command(flatten)]
    health: health::Options,
}

/// A benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Start, prepare, memory and idle cost of the agent on an 8-GPU node.
    Agent,
    /// A driver that goes, returns or is released; the agent's admin port under idle connections.
    Driver,
    /// Time to a running lab with 5 and with 500 nodes.
    Lab,
    /// MIG devices and shares on an 8-GPU node with every placement published.
    Mig,
    /// Cost of publishing with 500 nodes, and agents' writes per allocation.
    Slices,
    /// Time that a claim adds to a pod's start on a real node.
    Pods,
    /// Size of the program of CDI hooks, and its time per container.
    Hook,
    /// How often large MIG profiles still fit, by the listing order of placements.
    MigOrder,
    /// openb at 130 %: policies against the published means, ten seeds.
    Packing,
    /// Decisions, gangs and repairs on clusters of up to 25,000 nodes.
    Engine,
    /// Time that memory enforcement adds to calls, and whether racing processes exceed a share.
    MemoryEnforcement,
    /// Time that leases add to launches, and how exactly they divide the time of a simulated GPU. Needs root.
    TimeEnforcement,
    /// Pods, gangs and preemptions on up to 1,000 nodes: Octavo's scheduler, kube-scheduler, and none, in turn.
    Scheduler,
    /// A share of this machine's own GPU, prepared by the agent, with a command under memory enforcement.
    /// Needs root and is not part of `all`.
    RealShare,
    /// `ComputeDomains` on a rack of 18 trays: start, end, loss, API writes, memory.
    Domains,
    /// A node with device plugin, labels and static MIG: start, allocation, changes of config, mode and MIG layout.
    Operator,
    /// From the failure of a GPU to its taint, 200 nodes whose GPUs fail at once, the controller's memory.
    Health,
    /// All benchmarks, one after another.
    All,
}

/// Form of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people.
    Table,
    /// One JSON object a benchmark.
    Json,
}

// One thread: the measured programs must not wait for threads of the measuring client.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    let measured = match signals::InterruptibleRun::start() {
        Ok(whole) => whole.run(Box::pin(run(&args))).await,
        Err(error) => Err(error),
    };
    match measured {
        Ok(true) => ExitCode::SUCCESS,
        // A missed goal is a result, and a failure for scripts.
        Ok(false) => {
            print_error(&anyhow!("a goal was missed: see the column MET"));
            ExitCode::from(1)
        }
        Err(error) => {
            print_error(&error);
            ExitCode::from(2)
        }
    }
}

/// Runs the requested benchmarks. Returns whether every goal was met.
async fn run(args: &Args) -> anyhow::Result<bool> {
    // Some builds have two crypto providers for kube, so choose one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let octavo = || {
        args.octavo.canonicalize().with_context(|| {
            format!("{} is missing: run `cargo build --release` first", args.octavo.display())
        })
    };
    lab_dir::warn_about_other_labs(&args.octavo);
    let mut met = true;
    let all = [
        (Name::Agent, "agent"),
        (Name::Driver, "driver"),
        (Name::Lab, "lab"),
        (Name::Mig, "mig"),
        (Name::Pods, "pods"),
        (Name::Hook, "hook"),
        (Name::Slices, "slices"),
        (Name::MigOrder, "mig-order"),
        (Name::Packing, "packing"),
        (Name::Engine, "engine"),
        (Name::MemoryEnforcement, "memory-enforcement"),
        (Name::TimeEnforcement, "time-enforcement"),
        (Name::Scheduler, "scheduler"),
        (Name::Domains, "domains"),
        (Name::Operator, "operator"),
        (Name::Health, "health"),
        (Name::RealShare, "real-share"),
    ];
    for (name, wanted) in all {
        let is_of_all = args.name == Name::All && name != Name::RealShare;
        if args.name != name && !is_of_all {
            continue;
        }
        let figures = match name {
            Name::Agent => Box::pin(measure_agent(&octavo()?)).await?,
            Name::Driver => Box::pin(measure_driver(&octavo()?)).await?,
            Name::Lab | Name::All => Box::pin(lab::run(&octavo()?)).await?,
            Name::Mig => Box::pin(mig::run(&octavo()?)).await?,
            Name::Pods => Box::pin(pods::run(&octavo()?)).await?,
            Name::Hook => hook::run()?,
            Name::Health => Box::pin(health::run(&octavo()?, &args.health)).await?,
            Name::Domains => Box::pin(domains::run(&octavo()?)).await?,
            Name::Operator => Box::pin(measure_operator(&octavo()?)).await?,
            Name::Slices => Box::pin(slices::run(&octavo()?)).await?,
            Name::MigOrder => mig_order::run()?,
            Name::Packing => packing::run()?,
            Name::Engine => engine::run()?,
            Name::MemoryEnforcement => memory_enforcement::run(&octavo()?)?,
            Name::TimeEnforcement => time_enforcement::run(&octavo()?)?,
            Name::Scheduler => Box::pin(scheduler::run(&octavo()?, &args.scheduler)).await?,
            Name::RealShare => Box::pin(real_share::run(&octavo()?, &args.real_share)).await?,
        };
        met &= figures.iter().all(|figure| figure.met != Some(false));
        let report = Report {
            name: wanted.to_owned(),
            commit: environment::commit(),
            machine: environment::machine(),
            figures,
        };
        print(&report, args.format)?;
    }
    Ok(met)
}

async fn measure_agent(octavo: &std::path::Path) -> anyhow::Result<Vec<Figure>> {
    let lab_dir = LabDir::new()?;
    let mut options = lab_dir.whole(octavo);
    options.nodes = Some(agent::NODES.parse()?);
    let lab = Box::pin(Lab::up(options)).await?;
    let figures = Box::pin(agent::run(&lab, octavo)).await;
    lab.down().await?;
    figures
}

async fn measure_driver(octavo: &std::path::Path) -> anyhow::Result<Vec<Figure>> {
    let lab_dir = LabDir::new()?;
    let mut options = lab_dir.whole(octavo);
    options.nodes = Some(driver::NODES.parse()?);
    let lab = Box::pin(Lab::up(options)).await?;
    let figures = Box::pin(driver::run(&lab, octavo)).await;
    lab.down().await?;
    figures
}

async fn measure_operator(octavo: &std::path::Path) -> anyhow::Result<Vec<Figure>> {
    let lab_dir = LabDir::new()?;
    let mut options = lab_dir.whole(octavo);
    options.nodes = Some(operator::NODES.parse()?);
    let lab = Box::pin(Lab::up(options)).await?;
    let figures = Box::pin(operator::run(&lab, octavo)).await;
    lab.down().await?;
    figures
}

#[expect(clippy::print_stdout, reason = "a benchmark's report is its output")]
fn print(report: &Report, format: Format) -> anyhow::Result<()> {
    match format {
        Format::Table => println!("{}", report.table()),
        Format::Json => println!("{}", serde_json::to_string(report)?),
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a benchmark talks to the person who started it")]
fn print_error(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
