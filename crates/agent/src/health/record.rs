//! The record of a node's GPUs. It outlives the agent, its upgrades and the node's boots: a fence must not be lost.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use octavo_health::decide::Domain;
use octavo_health::unit::DeviceId;
use octavo_node::files::{StorageError, write_atomically};
use serde::{Deserialize, Serialize};

use super::log_note::LogNote;
use super::nics::Card;
use super::seen::Seen;

/// The version of the file's form. Later ones are for later agents alone.
const VERSION: u32 = 1;

/// All that is remembered of a node's GPUs. Fields of a later agent are left out here, but for those of the domain: without them a fence
/// might be read as none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    /// The boot in which it was written.
    pub(super) boot_id: String,
    /// The GPUs by UUID.
    pub(super) gpus: BTreeMap<String, Known>,
    /// The network cards that serve them, by PCI address.
    #[serde(default)]
    pub(super) nics: BTreeMap<String, Card>,
    /// States, histories, attempts.
    pub(super) domain: Domain,
    /// How far the kernel's log was read. What its lines changed is in the fields above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) kernel_log: Option<LogNote>,
}

/// A GPU of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Known {
    /// Its number in the domain.
    pub(super) id: DeviceId,
    /// Its name in the node's slices, when it was last there.
    #[serde(default)]
    pub(super) name: String,
    /// What was last read of it.
    pub(super) seen: Seen,
    /// Number of the last order of a person that was carried out.
    #[serde(default)]
    pub(super) order: i64,
    /// What its last test found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) found: Option<String>,
    /// The last try of a test, unless it had a result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tried: Option<Try>,
}

/// A try of a test. It is recorded before it begins: one that ends the agent, as by taking all of its memory, must not begin again at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Try {
    /// Why it could not be tried; `None` as long as that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// When it is tried again, in seconds.
    pub(super) next: u64,
    /// Time from the end of this try to the next, in seconds.
    pub(super) delay: u64,
    /// Length of the test, in seconds.
    #[serde(default)]
    pub(super) seconds: u64,
}

impl Try {
    /// Whether the next try is still to come. A time further off than test and delay is of a clock that was wrong, and holds nothing up.
    pub(super) fn waits(&self, now: u64) -> bool {
        let left = self.next.saturating_sub(now);
        0 < left && left <= self.delay.saturating_add(self.seconds)
    }
}

impl Known {
    /// A GPU of which nothing is known.
    pub(super) fn new(id: DeviceId) -> Self {
        Self { id, name: String::new(), seen: Seen::default(), order: 0, found: None, tried: None }
    }
}

#[derive(Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    record: T,
}

/// The file of a record.
#[derive(Clone, Debug)]
pub(crate) struct RecordFile {
    path: PathBuf,
    /// The text that is in it.
    text: String,
}

impl RecordFile {
    /// The file at a path. It need not exist.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, text: String::new() }
    }

    /// Reads the record. A file that cannot be read is kept aside, so that nothing of it is lost, and its record is empty.
    pub(super) fn read(&mut self) -> Record {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Record::default(),
            Err(error) => return self.refused(&error.to_string()),
        };
        let version = serde_json::from_str::<Versioned<serde::de::IgnoredAny>>(&text);
        match version {
            Ok(Versioned { version: VERSION, .. }) => {}
            Ok(Versioned { version, .. }) => {
                let text = format!("its version is {version}, and this agent knows {VERSION}");
                return self.refused(&text);
            }
            Err(error) => return self.refused(&error.to_string()),
        }
        match serde_json::from_str::<Versioned<Record>>(&text) {
            Ok(Versioned { record, .. }) => {
                self.text = text;
                record
            }
            Err(error) => self.refused(&error.to_string()),
        }
    }

    fn refused(&self, error: &str) -> Record {
        let aside = self.path.with_extension("json.unreadable");
        let kept = std::fs::rename(&self.path, &aside);
        tracing::error!(
            path = %self.path.display(), aside = %aside.display(), is_kept = kept.is_ok(), error,
            "the record of GPUs' health cannot be read; fences are known again once the driver reports their cause"
        );
        Record::default()
    }

    /// Writes the record if it has changed.
    pub(super) fn write(&mut self, record: &Record) -> Result<(), StorageError> {
        let text = serde_json::to_string(&Versioned { version: VERSION, record })
            .map_err(|error| StorageError::of("encode", &self.path)(error.into()))?;
        if text != self.text {
            write_atomically(&self.path, text.as_bytes(), true)?;
            // A remedy may reboot the node at once: the file must have its name by then.
            let folder = self.path.parent().unwrap_or(Path::new("/"));
            File::open(folder)
                .and_then(|folder| folder.sync_all())
                .map_err(StorageError::of("flush", folder))?;
            self.text = text;
        }
        Ok(())
    }
}
