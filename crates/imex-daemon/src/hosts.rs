//! The hosts file of the pod: its own lines, and one line for each slot.
//!
//! The kubelet mounts the file, so that it cannot be replaced by another: it is written in place. The lines of the slots have a
//! fixed width and stand together. So an update changes addresses where they are, and no other byte of the file ever moves.

mod edit;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::slots::Slots;
use edit::Edit;

/// A hosts file.
#[derive(Debug)]
pub(crate) struct HostsFile {
    path: PathBuf,
}

/// Why a hosts file cannot be updated.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} the hosts file {path}: {source}")]
pub(crate) struct HostsError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

impl HostsFile {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Gives each slot its line. A file that has them is not written; returns whether it was.
    pub(crate) fn update(&self, slots: &Slots) -> Result<bool, HostsError> {
        let failed = |action| {
            let path = self.path.clone();
            move |source| HostsError { action, path, source }
        };
        let old = match std::fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read.map_err(failed("read"))?,
        };
        let edit = Edit::new(&old, slots);
        if edit.text == old {
            return Ok(false);
        }
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&self.path);
        let file = file.map_err(failed("open"))?;
        apply(&file, &old, &edit).map_err(failed("write"))?;
        Ok(true)
    }
}

/// Writes what differs, in an order in which each interruption leaves a file that [`Edit::new`] repairs.
fn apply(file: &File, old: &[u8], edit: &Edit) -> io::Result<()> {
    if edit.kept < old.len() {
        file.set_len(edit.kept as u64)?;
    }
    let range = edit.changed(old);
    let changed = edit.text.get(range.clone()).unwrap_or_default();
    file.write_all_at(changed, range.start as u64)
}

#[cfg(test)]
mod tests;
