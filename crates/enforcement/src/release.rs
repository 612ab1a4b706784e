//! The end of a share: its frozen containers go on, and its folder is removed.

use std::fs;
use std::io;
use std::path::Path;

use octavo_node::NodePaths;
use octavo_node::files::StorageError;

use crate::process::freezer::Freezer;
use crate::process::proc::Cgroups;
use crate::share::{self, mount};
use crate::swap::forget;

/// Removes the folders whose names match; a missing parent is fine. Frozen containers are thawed first, since only a
/// file beside the folder records them.
///
/// # Errors
///
/// A folder that could not be read, unmounted or removed.
pub fn release_shares(
    paths: &NodePaths,
    is_meant: impl Fn(&str) -> bool,
) -> Result<(), StorageError> {
    let parent = share::parent(&paths.run_root);
    let entries = match fs::read_dir(&parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(StorageError::of("read", &parent))?,
    };
    for entry in entries {
        let entry = entry.map_err(StorageError::of("read", &parent))?;
        let is_meant = entry.file_name().to_str().is_some_and(&is_meant);
        // Files are records of frozen and of swapped containers, which go with their folders.
        let is_folder = entry.file_type().map_err(StorageError::of("read", &parent))?.is_dir();
        if !is_meant || !is_folder {
            continue;
        }
        let path = entry.path();
        thaw(&paths.cgroup_root, &path);
        mount::remove(&path).map_err(StorageError::of("unmount", &path))?;
        forget(&path).map_err(StorageError::of("remove the record of", &path))?;
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed.map_err(StorageError::of("remove", &path))?,
        }
    }
    Ok(())
}

/// Thaws the frozen containers of a share, before its folder is removed with the record of them.
fn thaw(cgroup_root: &Path, folder: &Path) {
    let thawed = Freezer::new(cgroup_root, Cgroups::default()).thaw(folder);
    // The containers are about to end in any case, so a failure must not block the release.
    if let Err(error) = thawed {
        let folder = folder.display();
        tracing::warn!(%folder, %error, "a share that is given back stays frozen");
    }
}
