//! The command `octavo driver`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::{Args, Subcommand};

use super::write;
use crate::connect::{ConnectArgs, Timeout, parse_timeout};
use crate::driver::{self, DriverState};
use crate::error::ViewError;

/// Options of `octavo driver`.
#[derive(Args, Clone, Debug)]
pub struct DriverArgs {
    #[command(subcommand)]
    action: DriverAction,
}

#[derive(Subcommand, Clone, Debug)]
enum DriverAction {
    /// Let the agents of nodes close the driver, for an upgrade, a reset or a MIG mode by hand
    #[command(after_help = "\
Drain the nodes first: pods with GPUs hold the driver, too. They are listed and left alone.
The agent prepares no claim and its devices are tainted until `octavo driver resume`.

Examples:
  kubectl drain gpu-7 --ignore-daemonsets && octavo driver release gpu-7
  octavo driver release gpu-7 gpu-8 --wait-timeout 10m")]
    Release(NodeArgs),

    /// Let the agents of nodes open the driver again
    Resume(NodeArgs),
}

#[derive(Args, Clone, Debug)]
struct NodeArgs {
    /// The nodes
    #[arg(value_name = "NODE", required = true)]
    nodes: Vec<String>,
    /// How long to wait for the agents, or 0 for no limit
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = parse_timeout)]
    wait_timeout: Timeout,
    /// Do not wait for the agents
    #[arg(long, conflicts_with = "wait_timeout")]
    no_wait: bool,
    /// Which cluster
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Runs `octavo driver`.
pub async fn run_driver(args: &DriverArgs) -> Result<(), ViewError> {
    let (wanted, verb, args) = match &args.action {
        DriverAction::Release(args) => (DriverState::Released, "released", args),
        DriverAction::Resume(args) => (DriverState::InUse, "opened", args),
    };
    let connection = args.connect.connect().await?;
    let client = &connection.client;
    let nodes: BTreeSet<String> = args.nodes.iter().cloned().collect();
    connection.within(driver::set_label(client, &nodes, wanted)).await?;
    let names = nodes.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    if args.no_wait {
        write(&format!("requested: {names}\n"))?;
        return Ok(());
    }
    let late = driver::wait(client, &nodes, wanted, args.wait_timeout).await;
    if !late.is_empty() {
        let nodes = late.iter().map(|(node, problem)| format!("{node} ({problem})"));
        return Err(ViewError::LateAgents {
            done: verb,
            nodes: nodes.collect::<Vec<_>>().join(", "),
        });
    }
    let mut text = match wanted {
        DriverState::Released => format!("released: {names}\n"),
        DriverState::InUse => format!("in use again: {names}\n"),
    };
    if wanted == DriverState::Released {
        let holders = connection.within(driver::holders(client, &nodes)).await?;
        if !holders.is_empty() {
            let holders = holders.into_iter().collect::<Vec<_>>().join(", ");
            // Writing to a string cannot fail.
            let _ = writeln!(text, "pods that still hold it: {holders}");
        }
    }
    write(&text)?;
    Ok(())
}
