//! Removes what a node that leaves Octavo would keep: the files of an agent that ends in the mode `none`.
//!
//! No claim and no pod has a GPU then, so no container needs one of them. Folders that are mounted into the agent's pod stay, empty.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::hook_program;
use crate::config::NodeConfig;
use crate::device_plugin::CDI_VENDOR;

/// Removes the files. What cannot be removed is in the log; the rest is removed all the same.
pub(super) fn remove_files(config: &NodeConfig) {
    let mut failed = Vec::new();
    let mut note = |path: &Path, result: io::Result<()>| {
        if let Err(error) = result {
            failed.push(format!("{}: {error}", path.display()));
        }
    };
    let paths = &config.paths;
    let folders = config.drivers().map(|driver| driver.plugin_folder(&paths.kubelet_root));
    let ours = folders.chain([paths.run_root.join("octavo")]).flat_map(|folder| entries(&folder));
    let specs = entries(&paths.cdi_root).into_iter().filter(|path| is_plugin_spec(path));
    for path in ours.chain(specs) {
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
