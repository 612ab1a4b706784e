//! The agent process: one node or many, until a signal.

mod acquire_node;
mod call_gate;
mod clique_label;
mod compute_domains;
mod health_object;
mod hook_program;
pub(crate) mod hook_socket;
mod inventory;
mod leave;
mod lifecycle;
mod mig_manager;
mod node;
mod node_mode;
mod node_settings;
mod offers;
mod pool;
mod publish;
mod publish_loop;
mod retry;
mod serving;
mod sockets;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use octavo_enforcement::watchdog::raise_descriptor_limit;
use octavo_kube_io::admin::{AdminAddress, AdminServer, Readiness};
use prometheus_client::registry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::args::{AgentArgs, AgentCommand, RunArgs};
use crate::config::{NodeConfig, NodeFile, read_nodes};
use crate::metrics::Metrics;
use node::NodeAgent;

/// Time for running calls to finish at shutdown.
const SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_secs(20);

/// State shared by the nodes of a process.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) readiness: Arc<Readiness>,
    /// Whether checks name their node.
    pub(crate) is_many: bool,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

/// Runs `octavo agent` until SIGTERM or SIGINT, or a subcommand to its end.
///
/// Needs a multi-threaded tokio runtime; two workers serve hundreds of nodes. The process must have installed rustls'
/// crypto provider.
pub async fn run(args: AgentArgs) -> anyhow::Result<()> {
    match args.command {
        Some(AgentCommand::Inventory(args)) => inventory::print(&args),
        None => Box::pin(serve(&args.run)).await,
    }
}

async fn serve(args: &RunArgs) -> anyhow::Result<()> {
    raise_descriptor_limit();
    let nodes = configs(args)?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut registry = Registry::default();
    let shared = Shared {
        metrics: Arc::new(Metrics::new(&mut registry)),
        readiness: Arc::new(Readiness::default()),
        is_many: nodes.len() > 1,
        stop: CancellationToken::new(),
        tasks: TaskTracker::new(),
    };
    // Detect an address in use before anything else is started.
    let admin = match args.admin_address {
        AdminAddress::None => None,
        AdminAddress::Listen(address) => {
            Some(AdminServer::bind(address).await?.with_access(args.metrics_access))
        }
    };
    tracing::info!(nodes = nodes.len(), "starting");
    for config in nodes {
        NodeAgent::start(config, shared.clone())?;
    }
    if let Some(admin) = admin {
        tracing::info!(address = %admin.address(), "serving health checks and metrics");
        let readiness = Arc::clone(&shared.readiness);
        shared.tasks.spawn(admin.serve(readiness, Arc::new(registry), shared.stop.clone()));
    }
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("stopping");
    shared.stop.cancel();
    shared.tasks.close();
    if tokio::time::timeout(SHUTDOWN_GRACE_PERIOD, shared.tasks.wait()).await.is_err() {
        tracing::warn!(
            seconds = SHUTDOWN_GRACE_PERIOD.as_secs(),
            "work was not done in time; leaving it"
        );
    }
    Ok(())
}

fn configs(args: &RunArgs) -> anyhow::Result<Vec<NodeConfig>> {
    if let Some(folder) = &args.nodes {
        // The environment of a pod describes one node only.
        let settings = NodeFile {
            node_name: None,
            instance_id: None,
            daemon_namespace: None,
            ..args.node.settings()
        };
        ensure!(
            settings == NodeFile::default(),
            "--nodes takes every setting from <node>/agent.yaml: remove the other flags"
        );
        return Ok(read_nodes(folder)?);
    }
    let file = args.node.config.as_deref().map(NodeFile::read).transpose()?.unwrap_or_default();
    Ok(vec![args.node.settings().or(file).complete()?])
}
