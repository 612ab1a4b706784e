//! The state of the machine, read again whenever its file changes.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::State;

/// The state file and what it said last.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    seen: Option<Fingerprint>,
    state: State,
}

/// What tells one version of the file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fingerprint {
    inode: u64,
    size: u64,
    seconds: i64,
    nanoseconds: i64,
}

impl StateFile {
    /// The state as it is now; a file that cannot be read counts as a machine that is well.
    pub fn open(path: PathBuf) -> Self {
        let mut file = Self { path, seen: None, state: State::default() };
        file.refresh();
        file
    }

    /// Catches up with the file. A half-written or broken one leaves the last good state.
    pub fn refresh(&mut self) -> &State {
        // Before reading, so that a change during it is noticed the next time.
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
