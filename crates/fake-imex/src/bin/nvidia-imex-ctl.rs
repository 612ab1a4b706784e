//! The command of the simulated IMEX service.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgGroup, Parser};
use octavo_fake_imex::command::{self, Subscription};
use octavo_fake_imex::config::{self, CommandAddress, Config};
use octavo_fake_imex::status::{Domain, NodeStatus};

/// Ask the simulated IMEX service for its state
#[derive(Parser)]
#[command(name = "nvidia-imex-ctl", version)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the real command")]
#[command(group(ArgGroup::new("what").required(true)))]
struct Args {
    /// Config file of the service
    #[arg(short = 'c', value_name = "FILE", default_value = config::DEFAULT_PATH)]
    config: PathBuf,
    /// Address and port of the service
    #[arg(short = 'i', num_args = 2, value_names = ["IP", "PORT"], conflicts_with = "socket")]
    address: Option<Vec<String>>,
    /// Socket of the service
    #[arg(short = 'u', long = "u", value_name = "FILE")]
    socket: Option<PathBuf>,
    /// Print the state of the service
    #[arg(short = 'q', group = "what")]
    query: bool,
    /// Print the state of the service at each change
    #[arg(short = 's', group = "what")]
    subscribe: bool,
    /// Print the state of the domain
    #[arg(short = 'N', group = "what")]
    domain: bool,
    /// Print the state of the domain every second
    #[arg(short = 'n', group = "what")]
    watch: bool,
    /// Print the domain as JSON
    #[arg(short = 'j')]
    json: bool,
    /// Add names of hosts to the domain
    #[arg(short = 'H')]
    host_names: bool,
    /// End `-s` after this time
    #[arg(short = 't', value_name = "MILLISECONDS")]
    timeout: Option<u64>,
    /// Hosts file in which names of nodes are looked up
    #[arg(long, value_name = "FILE", env = "OCTAVO_HOSTS_FILE", default_value = "/etc/hosts")]
    hosts: PathBuf,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if args.domain || args.watch {
        return domain(&args).await;
    }
    let address = address(&args)?;
    if args.subscribe {
        let watch = follow(command::subscribe(&address).await?);
        return match args.timeout {
            Some(time) => tokio::time::timeout(Duration::from_millis(time), watch)
                .await
                .unwrap_or(Ok(ExitCode::SUCCESS)),
            None => watch.await,
        };
    }
    match command::status(&address).await {
        Ok(node) => print(&format!("{}\n", node.status.name())).map(|()| ExitCode::SUCCESS),
        Err(error) => {
            print(&format!("{}\n", NodeStatus::Unavailable.name()))?;
            Err(error)
        }
    }
}

/// Where the service is asked.
fn address(args: &Args) -> anyhow::Result<CommandAddress> {
    if let Some(path) = &args.socket {
        return Ok(CommandAddress::Unix(path.clone()));
    }
    if let Some([address, port]) = args.address.as_deref() {
        let address: IpAddr =
            address.parse().with_context(|| format!("{address} is no address"))?;
        let port = port.parse().with_context(|| format!("{port} is no port"))?;
        return Ok(CommandAddress::Tcp(SocketAddr::new(address, port)));
    }
    let config = Config::read(&args.config)?;
    let first = config.commands.into_iter().next();
    first.context("IMEX_CMD_ENABLED is off: the service answers no commands")
}

async fn follow(mut subscription: Subscription) -> anyhow::Result<ExitCode> {
    let mut last = None;
    loop {
        let status = subscription.next().await?.status;
        if last.replace(status) != Some(status) {
            print(&format!("{}\n", status.name()))?;
        }
    }
}

async fn domain(args: &Args) -> anyhow::Result<ExitCode> {
    if args.address.is_some() || args.socket.is_some() {
        bail!("-n and -N need the config file (-c): it names the nodes");
    }
    let config = Config::read(&args.config)?;
    let mut last: Option<Domain> = None;
    loop {
        let mut now = command::domain(&config, &args.hosts).await?;
        mark_changes(&mut now, last.as_ref());
        if args.host_names {
            for node in now.nodes.values_mut() {
                node.host_name.clone_from(&node.host);
            }
        }
        let text = if args.json { serde_json::to_string(&now)? + "\n" } else { table(&now) };
        print(&text)?;
        if args.domain {
            return Ok(ExitCode::SUCCESS);
        }
        last = Some(now);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Marks what differs from the last report.
fn mark_changes(now: &mut Domain, last: Option<&Domain>) {
    let empty = BTreeMap::new();
    for (index, node) in &mut now.nodes {
        let before = last.and_then(|last| last.nodes.get(index));
        node.changed = before.is_none_or(|before| before.status != node.status);
        let links = before.map_or(&empty, |before| &before.connections);
        for (peer, link) in &mut node.connections {
            link.changed = links.get(peer).is_none_or(|before| before.status != link.status);
        }
    }
}

/// The domain as a table.
fn table(domain: &Domain) -> String {
    let mut text = String::from(
        "C connected, N never connected, R recovering, D disconnected, I node does not answer,\n\
         !V! versions differ, !M! lists of nodes differ\n\n",
    );
    let _ = writeln!(text, "{}\nNodes:", domain.timestamp);
    for (index, node) in &domain.nodes {
        let (host, status, version) = (&node.host, node.status.name(), &node.version);
        let _ = writeln!(text, "Node #{index:<3} - {host:<20} - {status:<20} - Version: {version}");
    }
    text.push_str("\nNodes From\\To");
    for index in domain.nodes.keys() {
        let _ = write!(text, " {index:>3}");
    }
    for (index, node) in &domain.nodes {
        let _ = write!(text, "\n{index:>13}");
        for link in node.connections.values() {
            let _ = write!(text, " {:>3}", link.status.letter());
        }
    }
    let _ = writeln!(text, "\nDomain State: {}", domain.status);
    text
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}
