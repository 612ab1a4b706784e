//! The agent's memory across restarts: one file a claim.
//!
//! ```text
//! <kubelet root>/plugins/gpu.nvidia.com/checkpoint/
//!   <claim uid>.json      what the claim holds: version, checksum, record
//!   boot                  the boot in which the folder was last used
//!   lock                  held by the one agent that uses the folder, the node's active one
//!   kept/<name>.<reason>  damaged files, for people to look at
//! ```
//!
//! A file is written beside its place, flushed, and renamed into it: a reader sees all of it or
//! nothing, after a power cut, too. Each claim has its own file, so that claims do not wait for one another.

mod files;
mod lock;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use files::{is_plain_name, write_atomically};
pub(crate) use lock::Lock;
pub(crate) use record::{
    Damage, HeldDevice, HeldKind, HeldMig, HeldShare, HeldTerms, MadeMig, Record, RecordState,
    decode, encode,
};

use crate::node::ClaimRef;

/// Suffix of files that are being written; leftovers of a crash are removed at start.
pub(crate) const TEMP_SUFFIX: &str = ".octavo-tmp";

/// The folder of checkpoints, locked for this process.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    boot_id: String,
    /// Whether an earlier boot used the folder last: what cannot be read now is of no container that lives.
    is_new_boot: bool,
    /// Held as long as the store lives, where nobody else holds it for the store.
    _lock: Option<Lock>,
}

/// What was found at start.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    /// Records of this boot by UID.
    pub(crate) records: BTreeMap<String, Record>,
    /// UIDs whose records are of an earlier boot.
    pub(crate) forgotten: Vec<String>,
    /// UIDs whose files could not be read, with what could be made out.
    pub(crate) damaged: BTreeMap<String, Damaged>,
}

/// A file that could not be read.
#[derive(Debug)]
pub(crate) struct Damaged {
    /// What is wrong with it.
    pub(crate) damage: Damage,
    /// The claim, where the text still shows it; not to be trusted.
    pub(crate) claim: Option<ClaimRef>,
}

/// A file operation that failed.
#[derive(Debug, thiserror::Error)]
#[error("could not {action} {}: {error}", path.display())]
pub struct StorageError {
    /// What was tried, as a verb.
    pub action: &'static str,
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub error: io::Error,
}

impl Store {
    /// Opens the folder, makes it where it is missing, locks it and removes what a crash left half-written.
    pub(crate) fn open(folder: &Path, boot_id: &str) -> Result<Self, StorageError> {
        let is_taken = || {
            StorageError::of("lock", &folder.join("lock"))(io::Error::other(
                "another agent uses this node",
            ))
        };
        let lock = Lock::take(folder)?.ok_or_else(is_taken)?;
        Self::open_with(folder, boot_id, Some(lock))
    }

    /// The same where the caller holds the lock, until the store is done with.
    pub(crate) fn open_locked(folder: &Path, boot_id: &str) -> Result<Self, StorageError> {
        Self::open_with(folder, boot_id, None)
    }

    fn open_with(folder: &Path, boot_id: &str, lock: Option<Lock>) -> Result<Self, StorageError> {
        files::remove_leftovers(folder)?;
        let marker = folder.join("boot");
        // Without the marker nothing is known: the same boot is the assumption that gives no GPU twice.
        let is_new_boot = fs::read_to_string(&marker).is_ok_and(|last| {
            let last = last.trim();
            !last.is_empty() && last != boot_id
        });
        Ok(Self {
            folder: folder.to_owned(),
            boot_id: boot_id.to_owned(),
            is_new_boot,
            _lock: lock,
        })
    }

    /// The current boot.
    pub(crate) fn boot_id(&self) -> &str {
        &self.boot_id
    }

    /// Whether an earlier boot used the folder last.
    pub(crate) fn is_new_boot(&self) -> bool {
        self.is_new_boot
    }

    /// Reads every claim's file.
    pub(crate) fn load(&self) -> Result<Loaded, StorageError> {
        let mut loaded = Loaded::default();
        for entry in fs::read_dir(&self.folder).map_err(StorageError::of("read", &self.folder))? {
            let entry = entry.map_err(StorageError::of("read", &self.folder))?;
            let name = entry.file_name();
            let Some(uid) = name.to_str().and_then(|name| name.strip_suffix(".json")) else {
                continue;
            };
            match fs::read(entry.path()) {
                Err(_) => {
                    let damaged = Damaged { damage: Damage::Unreadable, claim: None };
                    loaded.damaged.insert(uid.to_owned(), damaged);
                }
                Ok(text) => match decode(&text, uid) {
                    Ok(record) if record.boot_id == self.boot_id => {
                        loaded.records.insert(uid.to_owned(), record);
                    }
                    Ok(_) => loaded.forgotten.push(uid.to_owned()),
                    Err(damage) => {
                        let claim = record::claim_in(&text, uid);
                        loaded.damaged.insert(uid.to_owned(), Damaged { damage, claim });
                    }
                },
            }
        }
        Ok(loaded)
    }

    /// Notes that this boot uses the folder; to be called once all of an earlier boot's is dealt with.
    pub(crate) fn mark_boot(&self) -> Result<(), StorageError> {
        let marker = self.folder.join("boot");
        if fs::read_to_string(&marker).is_ok_and(|last| last == self.boot_id) {
            return Ok(());
        }
        write_atomically(&marker, self.boot_id.as_bytes(), true)
    }

    /// Writes a claim's file; it is on disk when this returns.
    pub(crate) fn write(&self, record: &Record) -> Result<(), StorageError> {
        write_atomically(&self.path(&record.claim.uid), encode(record).as_bytes(), true)
    }

    /// Removes a claim's file, if it is there.
    ///
    /// Nothing is flushed: a file that comes back after a power cut is of an earlier boot.
    pub(crate) fn remove(&self, uid: &str) -> Result<(), StorageError> {
        let path = self.path(uid);
        files::remove(&path)
    }

    /// Whether a claim's file is there as it was written.
    pub(crate) fn is_intact(&self, record: &Record) -> bool {
        fs::read(self.path(&record.claim.uid)).is_ok_and(|text| text == encode(record).as_bytes())
    }

    /// Puts a damaged file aside, and a fresh record in its place where there is one. The claim's name
    /// is never without a file in between, so that a crash cannot lose that it may hold something.
    pub(crate) fn quarantine(
        &self,
        uid: &str,
        damage: Damage,
        replacement: Option<&Record>,
    ) -> Result<PathBuf, StorageError> {
        let path = self.path(uid);
        let kept = self.folder.join("kept");
        fs::create_dir_all(&kept).map_err(StorageError::of("create", &kept))?;
        let aside = kept.join(format!("{uid}.json.{}", damage.as_str()));
        files::keep(&path, &aside)?;
        match replacement {
            Some(record) => {
                if path.is_dir() {
                    // A folder cannot be replaced by renaming a file over it.
                    let _ = fs::remove_dir_all(&path);
                }
                self.write(record)?;
            }
            None => files::remove(&path)?,
        }
        Ok(aside)
    }

    /// The file of a claim.
    pub(crate) fn path(&self, uid: &str) -> PathBuf {
        self.folder.join(format!("{uid}.json"))
    }
}

impl StorageError {
    /// Gives an error of the system its action and file.
    pub(crate) fn of<'a>(
        action: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(io::Error) -> Self + use<'a> {
        move |error| Self { action, path: path.to_owned(), error }
    }
}
