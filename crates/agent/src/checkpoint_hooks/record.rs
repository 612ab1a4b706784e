//! What was asked of pods. It is on the disk before a pod is asked, and outlives the agent.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use octavo_api::checkpoint::{CheckpointReport, FileRequest};
use octavo_enforcement::process::Process;
use octavo_node::files::{StorageError, write_atomically};
use serde::{Deserialize, Serialize};

/// What was asked of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Asked {
    /// `since` of the request.
    #[serde(default)]
    pub(super) since: String,
    /// When, in milliseconds of Unix time.
    pub(super) at: i64,
    /// The node's boot. Another boot has other processes.
    pub(super) boot_id: String,
    /// How.
    pub(super) way: Way,
    /// What became of it, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) report: Option<CheckpointReport>,
}

/// How a pod was asked, as far as it matters for the wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Way {
    /// A signal to a process.
    Signal {
        /// Its pid.
        pid: u32,
        /// When it began, in clock ticks since boot.
        start_time: u64,
    },
    /// A POST.
    Http,
    /// A file.
    File {
        /// The file.
        file: FileRequest,
        /// Whether it is known to have been made. It may have been without.
        is_made: bool,
    },
}

impl Way {
    /// The signal that a process got.
    pub(super) fn signal(process: Process) -> Self {
        Self::Signal { pid: process.pid, start_time: process.start_time }
    }
}

/// The file of the record.
#[derive(Debug)]
pub(super) struct RecordFile {
    path: PathBuf,
    asked: BTreeMap<String, Asked>,
}

impl RecordFile {
    /// Reads the file at a path. It need not exist. One that cannot be read is left out: pods may then be asked twice.
    pub(super) fn read(path: PathBuf) -> Self {
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            read => Some(read),
        };
        let asked = text.transpose().map_err(|error| error.to_string()).and_then(|text| {
            let text = text.unwrap_or_else(|| b"{}".to_vec());
            serde_json::from_slice(&text).map_err(|error| error.to_string())
        });
        let asked = asked.unwrap_or_else(|error| {
            tracing::error!(path = %path.display(), error, "what was asked of pods that leave cannot be read; some may be asked twice");
            BTreeMap::new()
        });
        Self { path, asked }
    }

    /// UIDs of the pods that were asked.
    pub(super) fn uids(&self) -> BTreeSet<String> {
        self.asked.keys().cloned().collect()
    }

    /// What was asked of a pod.
    pub(super) fn get(&self, uid: &str) -> Option<&Asked> {
        self.asked.get(uid)
    }

    /// Notes what is asked of a pod, or what became of it. It is on the disk on return.
    pub(super) fn set(&mut self, uid: &str, asked: Asked) -> Result<(), StorageError> {
        self.asked.insert(uid.to_owned(), asked);
        self.write()
    }

    /// Forgets a pod.
    pub(super) fn remove(&mut self, uid: &str) -> Result<(), StorageError> {
        if self.asked.remove(uid).is_none() {
            return Ok(());
        }
        self.write()
    }

    fn write(&self) -> Result<(), StorageError> {
        let text = serde_json::to_vec(&self.asked)
            .map_err(|error| StorageError::of("encode", &self.path)(error.into()))?;
        write_atomically(&self.path, &text, true)
    }
}
