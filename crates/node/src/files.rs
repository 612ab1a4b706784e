//! File operations that survive a crash at any point.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Suffix of files being written. Leftovers of a crash are removed at start.
pub const TEMP_SUFFIX: &str = ".octavo-tmp";

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("could not {action} {}: {error}", path.display())]
pub struct StorageError {
    /// The attempted operation, as a verb.
    pub action: &'static str,
    /// The file.
    pub path: PathBuf,
    /// Error of the system.
    #[source]
    pub error: io::Error,
}

impl StorageError {
    /// Adds operation and path to a system error.
    pub fn of<'a>(
        action: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(io::Error) -> Self + use<'a> {
        move |error| Self { action, path: path.to_owned(), error }
    }
}

/// Writes a file so that readers see either the old or the new content.
///
/// The content of a durable file reaches the disk before the file gets its name. A missing folder is created. On
/// failure the old content remains, and no temporary file.
pub fn write_atomically(path: &Path, content: &[u8], is_durable: bool) -> Result<(), StorageError> {
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
pub fn remove(path: &Path) -> Result<(), StorageError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => fs::remove_dir_all(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
    .map_err(StorageError::of("remove", path))
}

/// Whether text can be part of a file name without changing the path.
pub fn is_plain_name(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}
