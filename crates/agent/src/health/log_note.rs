//! How far the kernel's log was read. The record has that together with what came of the lines: a crash loses none, and none counts twice.

use std::path::Path;

use octavo_gpu::KernelLogPosition;
use serde::{Deserialize, Serialize};

use super::NodeHealth;

/// How far the kernel's log was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LogNote {
    /// Path of the log.
    path: String,
    /// Device and inode of a plain file; absent for `/dev/kmsg`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<(u64, u64)>,
    /// What is read next: an offset in the file, in bytes, or the sequence number of a record.
    next: u64,
}

impl LogNote {
    /// The position in a log.
    pub(crate) fn new(path: &Path, position: KernelLogPosition) -> Self {
        let KernelLogPosition { file, next } = position;
        Self { path: path.to_string_lossy().into_owned(), file, next }
    }

    /// The position in a log; `None` if the note is of another one.
    pub(crate) fn position(&self, path: &Path) -> Option<KernelLogPosition> {
        let is_same = self.path == path.to_string_lossy();
        is_same.then_some(KernelLogPosition { file: self.file, next: self.next })
    }

    /// The note in the next boot. All that `/dev/kmsg` has is of that boot. A file may have lines from before it, whose faults a reboot has
    /// mended, and does not say which they are.
    pub(super) fn after_boot(self) -> Option<Self> {
        self.file.is_none().then_some(Self { next: 0, ..self })
    }
}

impl NodeHealth {
    /// Where the log is read on. `None`: at its end.
    pub(crate) fn log_note(&self) -> Option<&LogNote> {
        self.record.kernel_log.as_ref()
    }

    /// Takes how far the log was read. The record has it once what was read is decided upon.
    pub(crate) fn log_read(&mut self, note: LogNote) {
        self.read_to = Some(note);
    }

    /// No log is read. One that is read later begins at its end: much may have become of its faults by then.
    pub(crate) fn forget_log(&mut self) {
        self.record.kernel_log = None;
    }
}

#[cfg(test)]
mod tests;
