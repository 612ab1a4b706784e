//! File operations that survive a crash at any point.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use super::{StorageError, TEMP_SUFFIX};

/// Writes a file so that readers see either the old or the new content.
///
/// The content of a durable file reaches the disk before the file gets its name. A missing folder is created. On
/// failure the old content remains, and no temporary file.
pub(crate) fn write_atomically(
    path: &Path,
    content: &[u8],
    is_durable: bool,
) -> Result<(), StorageError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temp = folder.join(format!(".{name}{TEMP_SUFFIX}"));
    let renamed = write_beside(&temp, content, is_durable)
        .and_then(|()| fs::rename(&temp, path).map_err(StorageError::of("rename into", path)));
    if renamed.is_err() {
        // The half-written file has no use and occupies a full disk. The first error is returned below.
        let _ = fs::remove_file(&temp);
    }
    renamed?;
    if is_durable {
        // The folder is not flushed. A power failure could lose only the name, and these records matter for one boot
        // only. No file may ever have its name without its content.
        crate::failpoint::hit("file.renamed");
    }
    Ok(())
}

/// Writes the file that is to be renamed.
fn write_beside(temp: &Path, content: &[u8], is_durable: bool) -> Result<(), StorageError> {
    let mut file = match fs::File::create(temp) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = temp.parent().unwrap_or(Path::new("/"));
            fs::create_dir_all(folder).map_err(StorageError::of("create", folder))?;
            fs::File::create(temp)
        }
        result => result,
    }
    .map_err(StorageError::of("create", temp))?;
    file.write_all(content).map_err(StorageError::of("write", temp))?;
    if is_durable {
        crate::failpoint::hit("file.written");
        file.sync_data().map_err(StorageError::of("flush", temp))?;
        crate::failpoint::hit("file.flushed");
    }
    Ok(())
}

/// Removes a file if it exists.
pub(super) fn remove(path: &Path) -> Result<(), StorageError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => fs::remove_dir_all(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
    .map_err(StorageError::of("remove", path))
}

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

/// Whether text can be part of a file name without changing the path.
pub(crate) fn is_plain_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
