//! State of a node that survives its process, as JSON.

use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Reads a file; a missing one gives the default.
pub(crate) fn load<T: Default + DeserializeOwned>(path: &Path) -> std::io::Result<T> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
        Err(e) => Err(e),
    }
}

/// Replaces a file atomically: readers see the whole old one or the whole new one.
pub(crate) fn save(path: &Path, value: &impl Serialize) -> std::io::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    std::fs::write(&next, serde_json::to_vec(value)?)?;
    std::fs::rename(&next, path)
}
