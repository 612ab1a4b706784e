//! The machine's state, read again whenever its file changes.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::State;

/// The state file and its last content.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    seen: Option<Fingerprint>,
    state: State,
}

/// Identifies a version of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint {
    inode: u64,
    size: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl StateFile {
    /// Opens the file; an unreadable file counts as a healthy machine.
    pub fn open(path: PathBuf) -> Self {
        let mut file = Self { path, seen: None, state: State::default() };
        file.refresh();
        file
    }

    /// Reads the file again if it has changed. An incomplete or invalid file keeps the last valid
    /// state.
    pub fn refresh(&mut self) -> &State {
        // Taken before reading, so that a concurrent change is noticed the next time.
        let now = fingerprint(&self.path);
        if now != self.seen {
            if let Ok(state) = State::read(&self.path) {
                self.state = state;
            }
            self.seen = now;
        }
        &self.state
    }

    /// The state as last read.
    pub fn state(&self) -> &State {
        &self.state
    }
}

fn fingerprint(path: &Path) -> Option<Fingerprint> {
    let file = std::fs::metadata(path).ok()?;
    Some(Fingerprint {
        inode: file.ino(),
        size: file.size(),
        seconds: file.mtime(),
        nanoseconds: file.mtime_nsec(),
    })
}

#[cfg(test)]
mod tests;
