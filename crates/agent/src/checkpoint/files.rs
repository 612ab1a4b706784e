//! Files of the checkpoint folder beside the records.

use std::fs;
use std::io;
use std::path::Path;

use octavo_node::files::{StorageError, TEMP_SUFFIX, remove};

/// Gives a file a second name and replaces an existing file there. A folder is moved instead.
pub(super) fn keep(path: &Path, aside: &Path) -> Result<(), StorageError> {
    remove(aside)?;
    match fs::hard_link(path, aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(_) => fs::rename(path, aside),
        Ok(()) => Ok(()),
    }
    .map_err(StorageError::of("keep aside", path))
}

/// Removes the files that a crash left half-written.
pub(super) fn remove_leftovers(folder: &Path) -> Result<(), StorageError> {
    for entry in fs::read_dir(folder).map_err(StorageError::of("read", folder))?.flatten() {
        if entry.file_name().to_string_lossy().ends_with(TEMP_SUFFIX) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}
