//! The agent of one node: its parts and their start order.
//!
//! ```text
//! newcomer --- lock is free, or handed over ---> active --- another agent requests it ---> standby
//!                                                  ^                                         |
//!                                                  +------ the other agent has exited -------+
//! ```
//!
//! A node has one active agent, which holds the lock of the checkpoint folder; see [`crate::handover`]. The driver's
//! thread and the API client start in any state. Parts that fail to start are retried while the others work, and the
//! readiness report names them.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use kube::Client;
use octavo_gpu::nvml::{Nvml, find_library};
use octavo_gpu::{Driver, DriverError};
use octavo_kube_io::Backoff;
use octavo_kube_io::admin::Check;
use octavo_kube_io::client::{self, ClientOptions};
use tokio::sync::watch;
use tokio::time::sleep;

use super::Shared;
use super::acquire_node::Role;
use super::node_settings::{self, NodeSettings};
use crate::config::NodeConfig;
use crate::failpoint;
use crate::monitor::{self, Opener, Snapshot};

/// Time without an answer after which a newcomer reports readiness as standby. Only then does a rolling update end the
/// unresponsive agent.
const STANDBY_AFTER: Duration = Duration::from_secs(20);

/// The agent of one node.
pub(super) struct NodeAgent {
    pub(super) config: Arc<NodeConfig>,
    pub(super) shared: Shared,
    pub(super) snapshots: watch::Receiver<Snapshot>,
    /// The node's settings; `None` until they were read.
    pub(super) settings: watch::Sender<Option<NodeSettings>>,
    /// Whether the driver is to be released; `None` until the settings were read.
    release: watch::Sender<Option<bool>>,
    /// Time without an answer after which it reports readiness as standby.
    pub(super) standby_after: Duration,
}

impl NodeAgent {
    /// Starts the node's tasks under the process's tracker. Fails only if the system cannot create a thread.
    pub(super) fn start(config: NodeConfig, shared: Shared) -> anyhow::Result<()> {
        let opener = opener(&config);
        let agent = Self::new(config, shared, opener)?;
        let (tasks, stop) = (agent.shared.tasks.clone(), agent.shared.stop.clone());
        tasks.spawn(agent.follow_driver());
        tasks.spawn(async move {
            let client = stop.run_until_cancelled(Box::pin(agent.connect())).await;
            if let Some(client) = client {
                Box::pin(agent.run(client)).await;
            }
        });
        Ok(())
    }

    /// Creates an agent and starts its driver's thread.
    pub(super) fn new(config: NodeConfig, shared: Shared, open: Opener) -> anyhow::Result<Self> {
        let node = config.node_name.clone();
        let (metrics, stop) = (Arc::clone(&shared.metrics), shared.stop.clone());
        let (release, released) = watch::channel(None);
        let snapshots = monitor::start(&node, open, released, metrics, stop)
            .with_context(|| format!("cannot start the driver's thread of node {node}"))?;
        let (config, standby_after) = (Arc::new(config), STANDBY_AFTER);
        let settings = watch::channel(None).0;
        Ok(Self { config, shared, snapshots, settings, release, standby_after })
    }

    /// Serves the node whenever this agent has it, until the process stops.
    pub(super) async fn run(self, client: Client) {
        let stop = self.shared.stop.clone();
        self.follow_settings(client.clone());
        let mut role = Role::Newcomer;
        let mut kept = None;
        loop {
            let (lock, sockets) = match kept.take() {
                Some(lock) => (lock, None),
                None => match stop.run_until_cancelled(Box::pin(self.acquire(role))).await {
                    Some(acquired) => acquired,
                    None => return,
                },
            };
            let node = &self.config.node_name;
            tracing::info!(%node, instance = self.instance(), "this agent serves the node");
            let request = Box::pin(self.serve(sockets, &client)).await;
            // Only the lock is left. It goes to the requesting agent, or becomes free.
            let Some(request) = request else { return drop(lock) };
            let instance = request.instance.clone();
            match request.give(lock).await {
                Ok(()) => {
                    failpoint::hit("handover.given");
                    tracing::info!(%node, to = %instance, "the node is handed over; standing by");
                    role = Role::Standby;
                }
                Err((lock, error)) => {
                    tracing::warn!(%node, to = %instance, %error, "the node could not be handed over");
                    kept = Some(lock);
                }
            }
        }
    }

    /// Follows the node's settings, whether this agent serves the node or not: each agent of a node has the driver open.
    fn follow_settings(&self, client: Client) {
        let (release, mut read) = (self.release.clone(), self.settings.subscribe());
        let relay = async move {
            while read.changed().await.is_ok() {
                let is_released = read.borrow_and_update().as_ref().map(|read| read.is_released);
                release.send_if_modified(|old| std::mem::replace(old, is_released) != is_released);
            }
        };
        let follow = node_settings::follow(client, Arc::clone(&self.config), self.settings.clone());
        let stop = self.shared.stop.clone();
        self.shared.tasks.spawn(async move {
            let both = async { tokio::join!(Box::pin(follow), relay) };
            stop.run_until_cancelled(both).await;
        });
    }

    async fn connect(&self) -> Client {
        let check = self.check("api", "the client is being made");
        let options = ClientOptions {
            kubeconfig: self.config.kubeconfig.clone(),
            context: None,
            user_agent: concat!("octavo-agent/", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        self.until_ok(&check, || client::connect(&options)).await
    }

    pub(super) fn instance(&self) -> &str {
        self.config.instance_id.as_deref().unwrap_or("unnamed")
    }

    /// Reflects the driver's state in the readiness report.
    fn follow_driver(&self) -> impl Future<Output = ()> + use<> {
        let check = self.check("driver", "the GPUs are being read");
        let (mut snapshots, stop) = (self.snapshots.clone(), self.shared.stop.clone());
        async move {
            snapshots.mark_changed();
            while let Some(Ok(())) = stop.run_until_cancelled(snapshots.changed()).await {
                let snapshot = snapshots.borrow_and_update();
                match (&snapshot.error, &snapshot.inventory) {
                    // As an administrator wishes.
                    (Some(_), _) if snapshot.is_driver_released => check.pass(),
                    (Some(error), _) => check.fail(error),
                    (None, Some(_)) => check.pass(),
                    (None, None) => {}
                }
            }
        }
    }

    /// Retries until it succeeds. `check` and the log show the error.
    pub(super) async fn until_ok<T, E, F>(&self, check: &Check, attempt: impl Fn() -> F) -> T
    where
        E: Display,
        F: Future<Output = Result<T, E>>,
    {
        let mut backoff = retry_delays();
        loop {
            match attempt().await {
                Ok(value) => {
                    check.pass();
                    return value;
                }
                Err(error) => {
                    let error = error.to_string();
                    tracing::error!(node = %self.config.node_name, %error, "trying again");
                    check.fail(error);
                    sleep(backoff.next_delay()).await;
                }
            }
        }
    }

    pub(super) fn check(&self, name: &str, reason: &str) -> Check {
        let name = if self.shared.is_many {
            format!("{}/{name}", self.config.node_name)
        } else {
            name.to_owned()
        };
        self.shared.readiness.check(name, reason)
    }
}

/// Opens the node's management library.
fn opener(config: &NodeConfig) -> Opener {
    let library = config.driver_library.clone();
    let driver_root = config.paths.driver_root_seen.clone();
    let sys_root = config.paths.sys_root.clone();
    Box::new(move || {
        let library = match &library {
            Some(library) => library.clone(),
            None => find_library(&driver_root)?,
        };
        let driver: Arc<dyn Driver> = Arc::new(Nvml::open(&library, &sys_root)?);
        Ok::<_, DriverError>(driver)
    })
}

/// Delays between retries.
pub(super) fn retry_delays() -> Backoff {
    Backoff::new(Duration::from_millis(500), Duration::from_secs(30))
}
