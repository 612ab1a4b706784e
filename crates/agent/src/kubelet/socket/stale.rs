//! Removes sockets of dead agents. A killed agent leaves socket files with its instance id, which no later agent has.
//! Without cleanup every kubelet start would try to register them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::sleep;

use super::{identity, remove as remove_file};
use crate::config::NodeConfig;
use crate::kubelet::endpoint;
use crate::node::DraDriver;

/// Delay before a dead socket is checked again. A new socket does not listen yet for a moment.
const RECHECK_DELAY: Duration = Duration::from_millis(500);

/// Removes a driver's sockets without a listener, registrations first.
pub(crate) async fn remove(driver: DraDriver, config: &NodeConfig) {
    let is_registration = |name: &str| driver.is_registration_socket(name);
    let mut dead = dead_sockets(&config.registry_folder(), is_registration).await;
    let plugin_folder = driver.plugin_folder(&config.paths.kubelet_root);
    dead.extend(dead_sockets(&plugin_folder, endpoint::is_socket_name).await);
    if dead.is_empty() {
        return;
    }
    sleep(RECHECK_DELAY).await;
    for (path, file) in dead {
        if identity(&path) == Some(file) && is_dead(&path).await {
            match remove_file(&path) {
                Ok(()) => tracing::info!(path = %path.display(), "removed a dead agent's socket"),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a dead agent's socket stays");
                }
            }
        }
    }
}

/// Sockets in a folder without a listener, with their identities.
async fn dead_sockets(folder: &Path, is_ours: impl Fn(&str) -> bool) -> Vec<(PathBuf, (u64, u64))> {
    let mut dead = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().to_str().is_some_and(&is_ours)
            && let Some(file) = identity(&path)
            && is_dead(&path).await
        {
            dead.push((path, file));
        }
    }
    dead.sort();
    dead
}

/// Whether a path is a socket that refuses connections. A socket with a full queue does not.
async fn is_dead(path: &Path) -> bool {
    let connected = UnixStream::connect(path).await;
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
