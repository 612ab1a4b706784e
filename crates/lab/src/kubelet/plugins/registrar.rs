//! Registers plugins when their sockets appear, and deregisters them when their sockets vanish.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::kubelet::backoff;
use crate::kubelet::node::Node;
use crate::kubelet::plugins::PluginInstance;
use crate::kubelet::plugins::health;
use crate::kubelet::plugins::registration::{Registration, RegistrationError};
use crate::kubelet::plugins::sockets::{SocketEvent, SocketWatch};

/// First delays between attempts: a socket appears shortly before its server listens.
const QUICK_RETRY_DELAYS_MS: [u64; 4] = [5, 10, 25, 50];

/// Plugin registration of all nodes.
pub(crate) struct Registrar {
    nodes: Vec<Arc<Node>>,
    sockets: SocketWatch,
    tasks: TaskTracker,
    health_retry: Duration,
    attempts: BTreeMap<PathBuf, CancellationToken>,
}

/// A plugin was not registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegisterError {
    /// The registration calls failed.
    #[error(transparent)]
    Registration(#[from] RegistrationError),
    /// The plugin was rejected and has been notified.
    #[error("{0}")]
    Refused(String),
}

impl Registrar {
    /// Watches the registration folders of `nodes`.
    pub(crate) fn new(
        nodes: Vec<Arc<Node>>,
        tasks: TaskTracker,
        health_retry: Duration,
    ) -> std::io::Result<Self> {
        let folders: Vec<PathBuf> = nodes.iter().map(|node| node.plugins_registry()).collect();
        let sockets = SocketWatch::new(&folders)?;
        Ok(Self { nodes, sockets, tasks, health_retry, attempts: BTreeMap::new() })
    }

    /// Registers plugins until `shutdown`. An error means that the folders cannot be watched any
    /// more.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut changes = self.sockets.scan()?;
        loop {
            for (number, event) in changes {
                self.handle_event(number, event);
            }
            match shutdown.run_until_cancelled(self.sockets.changes()).await {
                Some(next) => changes = next?,
                None => return Ok(()),
            }
        }
    }

    fn handle_event(&mut self, number: usize, event: SocketEvent) {
        let Some(node) = self.nodes.get(number) else { return };
        let (SocketEvent::Appeared(socket) | SocketEvent::Gone(socket)) = &event;
        // A new socket at the same path belongs to another process.
        if let Some(attempt) = self.attempts.remove(socket) {
            attempt.cancel();
        }
        if let Some(old) = node.plugins.remove(socket) {
            tracing::info!(node = node.name, driver = old.description.driver, "plugin gone");
        }
        let SocketEvent::Appeared(socket) = event else { return };
        let token = node.shutdown.child_token();
        self.attempts.insert(socket.clone(), token.clone());
        let (node, retry) = (Arc::clone(node), self.health_retry);
        self.tasks.spawn(async move {
            let registering = register_until_done(&node, &socket, &token);
            let Some(instance) = token.run_until_cancelled(registering).await else { return };
            // Returns at once if the socket has vanished meanwhile.
            health::follow_health(&instance, &node.reports, retry).await;
        });
    }
}

/// Retries until the plugin is registered. Cancelling `token` deregisters the instance, even during
/// the last step.
async fn register_until_done(
    node: &Node,
    socket: &Path,
    token: &CancellationToken,
) -> Arc<PluginInstance> {
    let mut attempt = 0;
    loop {
        match register(node, socket, token).await {
            Ok(instance) => {
                let driver = instance.description.driver.as_str();
                tracing::info!(node = node.name, driver, "plugin registered");
                return instance;
            }
            Err(error) => {
                let pause = if let Some(millis) = QUICK_RETRY_DELAYS_MS.get(attempt) {
                    Duration::from_millis(*millis)
                } else {
                    let error = format!("{:#}", anyhow::Error::from(error));
                    tracing::warn!(node = node.name, error, "plugin not registered");
                    let slow =
                        u32::try_from(attempt - QUICK_RETRY_DELAYS_MS.len()).unwrap_or(u32::MAX);
                    backoff(slow, &node.name)
                };
                tokio::time::sleep(pause).await;
                attempt += 1;
            }
        }
    }
}

/// Registers the plugin behind `socket` once.
async fn register(
    node: &Node,
    socket: &Path,
    token: &CancellationToken,
) -> Result<Arc<PluginInstance>, RegisterError> {
    let mut registration = Registration::dial(socket).await?;
    let description = match registration.info().await? {
        Ok(description) => description,
        Err(problem) => return refuse(registration, problem).await,
    };
    let instance = match node.plugins.add(socket, description, token) {
        Ok(instance) => instance,
        Err(error) => {
            let problem =
                format!("RegisterPlugin error -- plugin registration failed with err: {error}");
            return refuse(registration, problem).await;
        }
    };
    if let Err(error) = registration.notify(None).await {
        node.plugins.remove(socket);
        return Err(error.into());
    }
    Ok(instance)
}

async fn refuse<T>(registration: Registration, problem: String) -> Result<T, RegisterError> {
    registration.notify(Some(problem.clone())).await?;
    Err(RegisterError::Refused(problem))
}
