//! The simulated IMEX service.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use octavo_fake_imex::{Config, Daemon, Environment, config, daemon};
use tokio::signal::unix::{SignalKind, signal};

/// The simulated IMEX service of a node
#[derive(Parser)]
#[command(name = "nvidia-imex", version)]
struct Args {
    /// Config file
    #[arg(short, long, value_name = "FILE", default_value = config::DEFAULT_PATH)]
    config: PathBuf,
    /// Run without a driver
    #[arg(long)]
    nogpu: bool,
    /// Hosts file in which names of nodes are looked up
    #[arg(long, value_name = "FILE", env = "OCTAVO_HOSTS_FILE", default_value = "/etc/hosts")]
    hosts: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let machine = if args.nogpu {
        None
    } else {
        Some(daemon::machine().context("there is no driver on this node")?)
    };
    // Before the service is ready: a signal must not end it.
    let mut reload = signal(SignalKind::user_defined1())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let config = Config::read(&args.config)?;
    let daemon = Daemon::start(config, &Environment { hosts: args.hosts, machine }).await?;
    loop {
        tokio::select! {
            _ = reload.recv() => { daemon.reload(); }
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    daemon.shut_down().await;
    Ok(())
}
