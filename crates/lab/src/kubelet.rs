//! The simulated kubelet: one process acts as the kubelet of every simulated node of a lab.
//!
//! ```text
//!  one inotify --> plugins of each node <-- gRPC --> agent
//!                        ^
//!  one pod watch --> one task per pod --> prepare, CDI, status, unprepare
//!  one heartbeat per node --> Node, Lease
//!  two sockets per node --> device plugins, PodResources
//! ```
//!
//! Pure functions make all decisions: statuses, reference counts, CDI merges and a container's
//! devices. The tasks carry them out. The process may be killed at any moment. Each node's
//! `kubelet/dra_state.json` records a claim before its plugin is asked to prepare it, and
//! `kubelet/device-plugins/kubelet_internal_checkpoint` a container's devices before it is created.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::node::Node;
use self::pod_addresses::PodAddresses;
use self::pods::processes::ProcessHost;
use self::settings::Settings;
use crate::cluster::layout::Layout;
use crate::cluster::settings::Settings as LabSettings;

mod claims;
mod device_manager;
#[cfg(test)]
mod fake_api;
#[cfg(test)]
mod fake_plugin;
mod json_file;
mod node;
mod plugins;
mod pod_addresses;
mod pods;
mod settings;

/// Longest duration of one call to the API server.
const API_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for tasks to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of nodes that register concurrently; more would only queue in the API server.
const MAX_CONCURRENT_REGISTRATIONS: usize = 32;

/// Why a call to the API server failed.
#[derive(Debug, thiserror::Error)]
enum ApiError {
    /// The server rejected the call, or it could not be reached.
    #[error(transparent)]
    Kube(#[from] kube::Error),
    /// No response in time.
    #[error("no answer from the API server within {API_TIMEOUT:?}")]
    Timeout,
}

/// Acts as the kubelets of all nodes under `<state_dir>/nodes/` until `shutdown`. Reads optional
/// settings from `<state_dir>/kubelets.yaml`.
pub(crate) async fn run(
    state_dir: &Path,
    kubeconfig: &Path,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let settings = Arc::new(Settings::read(&state_dir.join("kubelets.yaml"))?);
    let client = crate::cluster::kubeconfig::client(kubeconfig).await?;
    let folders = node_folders(&state_dir.join("nodes"))?;
    let host = Arc::new(ProcessHost::new(state_dir)?);
    // No two labs that run have the same port.
    let lab = LabSettings::read(&Layout::new(state_dir)?)?;
    let lab = lab.map_or(0, |lab| lab.ports.apiserver);
    let (addresses, tasks) = (Arc::new(PodAddresses::new(lab)), TaskTracker::new());
    let mut nodes = BTreeMap::new();
    for (ordinal, folder) in folders.into_iter().enumerate() {
        let node = Node::open(
            folder,
            ordinal,
            client.clone(),
            (Arc::clone(&addresses), Arc::clone(&host)),
            shutdown.child_token(),
        )?;
        nodes.insert(node.name.clone(), Arc::new(node));
    }
    tracing::info!(nodes = nodes.len(), "simulated kubelets start");

    let registrar = plugins::registrar::Registrar::new(
        nodes.values().cloned().collect(),
        tasks.clone(),
        Duration::from_secs(settings.health_retry_seconds.into()),
    )?;
    let mut registrar = tasks.spawn(registrar.run(shutdown.clone()));
    for node in nodes.values() {
        if let Err(error) = device_manager::sockets::serve(node, &tasks) {
            let error = format!("{error:#}");
            tracing::warn!(node = node.name, error, "device plugins are not served");
        }
    }
    tasks.spawn(pods::dispatch::run(client, nodes.clone(), tasks.clone(), shutdown.clone()));
    let permits = Arc::new(Semaphore::new(MAX_CONCURRENT_REGISTRATIONS));
    for node in nodes.into_values() {
        let (settings, permits) = (Arc::clone(&settings), Arc::clone(&permits));
        tasks.spawn(async move {
            let heartbeat = node::heartbeat::run(&node, &settings, &permits);
            node.shutdown.run_until_cancelled(heartbeat).await;
        });
    }

    let result = tokio::select! {
        () = shutdown.cancelled() => Ok(()),
        ended = &mut registrar => ended.context("the watch over plugins' sockets failed")?,
    };
    shutdown.cancel();
    tasks.close();
    tokio::time::timeout(SHUTDOWN_TIMEOUT, tasks.wait()).await.with_context(|| {
        format!("tasks of simulated kubelets did not end in {SHUTDOWN_TIMEOUT:?}")
    })?;
    result
}

impl ApiError {
    /// Whether the object is gone: not found, or replaced by one with another UID.
    fn means_gone(&self) -> bool {
        matches!(self, Self::Kube(kube::Error::Api(status)) if [404, 409].contains(&status.code))
    }
}

/// The nodes' folders, sorted by name.
fn node_folders(parent: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let context =
        || format!("cannot read the folder of nodes {}: is the lab up?", parent.display());
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(parent).with_context(context)? {
        let path = entry.with_context(context)?.path();
        if path.is_dir() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// Runs a call to the API server within [`API_TIMEOUT`].
fn within<T>(
    call: impl Future<Output = Result<T, kube::Error>>,
) -> impl Future<Output = Result<T, ApiError>> {
    // Boxed: a client's call is large, and thousands of tasks make one occasionally.
    let call = Box::pin(call);
    async move {
        match tokio::time::timeout(API_TIMEOUT, call).await {
            Ok(result) => Ok(result?),
            Err(_) => Err(ApiError::Timeout),
        }
    }
}

/// Delay after `attempt` failures: 0.2 s, doubled up to 10 s, plus or minus 20 %.
fn backoff(attempt: u32, who: &str) -> Duration {
    let pause = Duration::from_millis(200 << attempt.min(6)).min(Duration::from_secs(10));
    pause.mul_f64(0.8 + 0.4 * unit_hash(who))
}

/// A number in [0, 1) derived from the name: deterministic jitter.
fn unit_hash(name: &str) -> f64 {
    let hash = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    f64::from(hash) / (f64::from(u32::MAX) + 1.0)
}
