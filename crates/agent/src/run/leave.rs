//! Removes what a node that leaves Octavo would keep: the files of an agent in the mode `none`.
//!
//! No claim and no pod has a GPU then, so no container needs one of them. Folders that are mounted into the agent's pod stay. So does a
//! file of NVIDIA's driver that was taken over.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::hook_program;
use crate::config::NodeConfig;
use crate::device_plugin::CDI_VENDOR;

/// Removes the CDI specs of the device plugin, once the node offers nothing. Later ones may be of NVIDIA's plugin, which has the same
/// names.
pub(super) fn remove_plugin_specs(config: &NodeConfig) {
    for path in entries(&config.paths.cdi_root).into_iter().filter(|path| is_plugin_spec(path)) {
        if let Err(error) = remove(&path) {
            tracing::warn!(path = %path.display(), %error, "a CDI spec is left");
        }
    }
}

/// Removes the files that a running agent needs. What cannot be removed is in the log; the rest is removed all the same.
pub(super) fn remove_files(config: &NodeConfig) {
    let mut failed = Vec::new();
    let mut note = |path: &Path, result: io::Result<()>| {
        if let Err(error) = result {
            failed.push(format!("{}: {error}", path.display()));
        }
    };
    let paths = &config.paths;
    let folders = config.drivers().map(|driver| driver.plugin_folder(&paths.kubelet_root));
    let of_plugins = folders.flat_map(|folder| entries(&folder)).filter(|path| is_of_agent(path));
    for path in of_plugins.chain(entries(&paths.run_root.join("octavo"))) {
        note(&path, remove(&path));
    }
    note(&config.hook_path_seen, hook_program::remove(&config.hook_path_seen));
    let node = &config.node_name;
    if failed.is_empty() {
        tracing::info!(%node, "the node has left: the agent's files are removed");
    } else {
        tracing::warn!(%node, "files are left on the node: {}", failed.join("; "));
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Whether an entry of a plugin's folder is the agent's: its checkpoints, a record of it, or a socket.
fn is_of_agent(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_socket = path.extension().is_some_and(|it| it == "sock");
    let is_record = |record| name.trim_start_matches('.').starts_with(record);
    name == "checkpoint"
        || is_record("health.json")
        || is_record("checkpoint-hooks.json")
        || is_socket
}

fn is_plugin_spec(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix(CDI_VENDOR).is_some_and(|rest| rest.starts_with('-'))
}

/// Removes a file or a folder. A link is removed, not what it leads to.
fn remove(path: &Path) -> io::Result<()> {
    let removed = if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests;
