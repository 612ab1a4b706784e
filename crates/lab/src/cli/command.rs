//! Implementation of each `octavo lab` subcommand.

use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::chaos;
use crate::cli::args::{
    ChaosArgs, KubectlArgs, LabArgs, LabCommand, NodeAction, NodeArgs, StatusArgs, TourArgs, UpArgs,
};
use crate::cli::output::{self, print};
use crate::cli::progress::Progress;
use crate::cli::{gpu, imex, logs, status, tour};
use crate::cluster::layout::Layout;
use crate::cluster::process::Process;
use crate::cluster::{Lab, UpOptions};
use crate::cluster::{parent_watch, stop};
use crate::nodes::hardware::driver_modules;
use crate::nodes::provision;
use crate::real_node::RealNodeKind;
use crate::{kubelet, real_node};

/// Runs one `octavo lab` command to its end.
///
/// Errors are for the user. `kubectl` replaces this process, so the exit status is kubectl's own.
pub async fn run(args: LabArgs) -> anyhow::Result<()> {
    let layout = Layout::choose(args.state_dir.as_deref())?;
    match args.command {
        LabCommand::Up(args) => Box::pin(up(&layout, args)).await,
        LabCommand::Down(args) => down(&layout, args.keep_logs).await,
        LabCommand::Status(args) => print_status(&layout, &args).await,
        LabCommand::Kubeconfig => {
            open(&layout)?;
            print(&format!("{}\n", layout.kubeconfig().display()))
        }
        LabCommand::Kubectl(args) => kubectl(&open(&layout)?, &args),
        LabCommand::Gpu(args) => {
            print(&gpu::act(&layout, &open(&layout)?, &args.node, args.index, &args.action)?)
        }
        LabCommand::Node(args) => node(&layout, &open(&layout)?, &args).await,
        LabCommand::Logs(args) => Box::pin(logs::show(&layout, &args)).await,
        LabCommand::Chaos(args) => Box::pin(run_chaos(&open(&layout)?, &args)).await,
        LabCommand::Tour(args) => Box::pin(run_tour(&open(&layout)?, &args)).await,
        LabCommand::Kubelets => Box::pin(run_kubelets(&layout)).await,
        LabCommand::Registry => Box::pin(real_node::registry::run(&layout)).await,
        LabCommand::ParentWatch(args) => {
            let parent = Process::parse(&args.parent);
            let parent = parent.with_context(|| format!("{:?} is not a process", args.parent))?;
            parent_watch::run(&layout, parent).await
        }
        LabCommand::RealNode(args) => Box::pin(real_node::init::run(&layout, &args.name)).await,
    }
}

async fn up(layout: &Layout, args: UpArgs) -> anyhow::Result<()> {
    let began = tokio::time::Instant::now();
    let octavo = std::env::current_exe().context("find the path of this program")?;
    let (scheduler, controller, imex) =
        (args.octavo_scheduler(), args.controller, args.imex.settings());
    let whole = if args.control_plane_only {
        UpOptions::control_plane_only(layout.root(), octavo)
    } else {
        UpOptions { nodes: args.nodes, ..UpOptions::new(layout.root(), octavo) }
    };
    let options = UpOptions {
        real_nodes: args.real_node,
        real_node_kind: args.real_node_kind,
        dynamic_mig: args.dynamic_mig,
        owners: args.owner,
        scheduler: scheduler.or(whole.scheduler),
        controller: controller.or(whole.controller),
        imex,
        dns: args.dns,
        mpi_operator: args.mpi_operator,
        fake_driver: args.fake_driver,
        ready_timeout: Duration::from_secs(args.timeout),
        progress: Progress::to_stderr(),
        ..whole
    };
    let was_up = Lab::open(layout.root())?.is_some_and(|lab| lab.settings().complete);
    let mut terminated = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let lab = tokio::select! {
        lab = Lab::up(options) => lab?,
        _ = terminated.recv() => return interrupted(layout, was_up).await,
        interrupt = tokio::signal::ctrl_c() => {
            interrupt.context("listen for Ctrl-C")?;
            return interrupted(layout, was_up).await;
        }
    };
    let state = if was_up { "is up already" } else { "is up" };
    print(&output::welcome(&lab, state, began.elapsed()))
}

/// Removes everything that an interrupted `up` started. A lab that was up before stays up.
async fn interrupted(layout: &Layout, was_up: bool) -> anyhow::Result<()> {
    if was_up {
        bail!("interrupted; the lab stays up, because it was up before");
    }
    stop::down(layout, false).await.context("stop the started programs")?;
    bail!("interrupted; the lab is stopped and removed")
}

async fn down(layout: &Layout, keep_logs: bool) -> anyhow::Result<()> {
    match stop::down(layout, keep_logs).await? {
        None => print(&format!("no lab is up in {}\n", layout.root().display())),
        Some(processes) => {
            let s = if processes == 1 { "" } else { "es" };
            print(&format!(
                "the lab in {} is down: {processes} process{s} stopped\n",
                layout.root().display()
            ))
        }
    }
}

async fn print_status(layout: &Layout, args: &StatusArgs) -> anyhow::Result<()> {
    let status = Box::pin(status::gather(layout)).await?;
    print(&output::status(&status, args.output)?)
}

fn kubectl(lab: &Lab, args: &KubectlArgs) -> anyhow::Result<()> {
    let tool = lab.settings().control_plane.get("kubectl").context("the lab has no kubectl")?;
    let error = std::process::Command::new(&tool.program)
        .args(&tool.args)
        .args(&args.args)
        .env("KUBECONFIG", lab.kubeconfig())
        .env("KUBECACHEDIR", lab.layout().kubectl_cache())
        .exec();
    Err(error).with_context(|| format!("run {}", tool.program.display()))
}

async fn node(layout: &Layout, lab: &Lab, args: &NodeArgs) -> anyhow::Result<()> {
    let folder = gpu::node_folder(layout, lab, &args.node)?;
    match args.action {
        NodeAction::Reboot if lab.real_nodes().iter().any(|node| node.name == args.node) => {
            lab.reboot_real_node(&args.node).await?;
            print(&format!("{} starts anew\n", args.node))
        }
        NodeAction::Reboot => {
            let boot_id =
                provision::reboot(&folder).with_context(|| format!("reboot {}", args.node))?;
            print(&format!("{} has the boot id {boot_id}\n", args.node))
        }
        NodeAction::UnloadDriver | NodeAction::LoadDriver { .. }
            if lab.settings().real.as_ref().is_some_and(|real| {
                real.kind() == RealNodeKind::VirtualMachine
                    && real.nodes.iter().any(|node| node.name == args.node)
            }) =>
        {
            anyhow::bail!(
                "{} is a virtual machine: who uses its driver cannot be seen from here; use a \
                 simulated node, or a real node in namespaces",
                args.node
            )
        }
        NodeAction::Imex(ref faults) => {
            imex::set(&folder, &args.node, faults.clone())?;
            print(&format!("the IMEX service of {} has these faults and no others\n", args.node))
        }
        NodeAction::UnloadDriver => {
            driver_modules::unload(&folder)
                .with_context(|| format!("unload the driver of {}", args.node))?;
            print(&format!("{} has no driver loaded\n", args.node))
        }
        NodeAction::LoadDriver { uvm_major } => {
            driver_modules::load(&folder, uvm_major)
                .with_context(|| format!("load the driver of {}", args.node))?;
            print(&format!("{} has its driver loaded\n", args.node))
        }
    }
}

/// Runs the simulated kubelets until SIGTERM or Ctrl-C.
async fn run_kubelets(layout: &Layout) -> anyhow::Result<()> {
    let shutdown = CancellationToken::new();
    let kubeconfig = layout.client_kubeconfig("kubelets");
    let mut terminated = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let kubelets = Box::pin(kubelet::run(layout.root(), &kubeconfig, shutdown.clone()));
    let signals = async {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        shutdown.cancel();
    };
    let (outcome, ()) = tokio::join!(
        async {
            let outcome = kubelets.await;
            // Also ends the wait for signals.
            shutdown.cancel();
            outcome
        },
        async {
            shutdown.run_until_cancelled(signals).await;
        }
    );
    outcome
}

async fn run_tour(lab: &Lab, args: &TourArgs) -> anyhow::Result<()> {
    let client = lab.client().await?;
    let octavo = &lab.settings().octavo;
    let mut printed = Ok(());
    let say = |line: &str| {
        if printed.is_ok() {
            printed = print(&format!("{line}\n"));
        }
    };
    tour::tour(&client, lab.state_dir(), &args.examples, octavo, say).await?;
    printed
}

async fn run_chaos(lab: &Lab, args: &ChaosArgs) -> anyhow::Result<()> {
    let options = chaos::Options {
        seed: args.seed,
        faults: args.faults,
        interval: Duration::from_millis(args.interval),
        pods: args.pods,
        settle: Duration::from_secs(args.settle),
    };
    // Standard output has the report alone.
    let progress = Progress::to_stderr();
    let report = chaos::run(lab, &options, |line| progress.line(line)).await?;
    print(&output::chaos(&report, args.output)?)?;
    ensure!(
        report.violations.is_empty(),
        "invariants did not hold: see the violations of the report"
    );
    Ok(())
}

/// The lab in this folder, or an error that says how to start one.
fn open(layout: &Layout) -> anyhow::Result<Lab> {
    Lab::open(layout.root())?.with_context(|| {
        format!("no lab is up in {}: start one with `octavo lab up`", layout.root().display())
    })
}
