//! State of the agent that survives restarts: one file per claim.
//!
//! ```text
//! <kubelet root>/plugins/<driver>/checkpoint/
//!   <claim uid>.json      devices of the claim: version, checksum, record
//!   boot                  the boot in which the folder was last used
//!   lock                  held by the node's active agent, in the folder of the GPUs' driver
//!   kept/<name>.<reason>  damaged files, for diagnosis
//! ```
//!
//! Files are written under a temporary name, flushed and renamed. A reader therefore sees a complete file or none, even
//! after a power failure. Each claim has its own file, so claims do not wait for each other.

mod files;
mod format;
mod lock;
mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

pub(crate) use format::{Checkpointed, ClaimRecord, Damage, decode, encode};
pub(crate) use lock::Lock;
pub(crate) use record::{
    HeldDevice, HeldKind, HeldMig, HeldMps, HeldShare, HeldSharing, HeldTerms, MadeMig, Record,
    RecordState,
};

use octavo_node::ClaimRef;
use octavo_node::files::{StorageError, remove, write_atomically};

/// The folder of a driver's checkpoints, locked for this process.
#[derive(Debug)]
pub(crate) struct Store<R = Record> {
    folder: PathBuf,
    boot_id: String,
    /// Whether an earlier boot used the folder last. Unreadable files then belong to no running container.
    is_new_boot: bool,
    /// Held for the life of the store, unless the caller holds the lock.
    _lock: Option<Lock>,
    _records: PhantomData<fn(R) -> R>,
}

/// Files found at start.
#[derive(Debug)]
pub(crate) struct Loaded<R = Record> {
    /// Records of this boot by UID.
    pub(crate) records: BTreeMap<String, R>,
    /// UIDs of claims with a record of an earlier boot.
    pub(crate) forgotten: Vec<String>,
    /// UIDs of unreadable files, with the readable parts.
    pub(crate) damaged: BTreeMap<String, Damaged>,
}

/// A file that could not be read.
#[derive(Debug)]
pub(crate) struct Damaged {
    /// Kind of damage.
    pub(crate) damage: Damage,
    /// The claim, if the text still names it. Not trustworthy.
    pub(crate) claim: Option<ClaimRef>,
}

impl<R: Checkpointed> Store<R> {
    /// Opens the folder, creates it if missing, locks it, and removes half-written files of a crash.
    pub(crate) fn open(folder: &Path, boot_id: &str) -> Result<Self, StorageError> {
        let is_taken = || {
            StorageError::of("lock", &folder.join("lock"))(io::Error::other(
                "another agent uses this node",
            ))
        };
        let lock = Lock::take(folder)?.ok_or_else(is_taken)?;
        Self::open_with(folder, boot_id, Some(lock))
    }

    /// Like [`Store::open`], for a caller that holds the lock for the life of the store.
    pub(crate) fn open_locked(folder: &Path, boot_id: &str) -> Result<Self, StorageError> {
        Self::open_with(folder, boot_id, None)
    }

    fn open_with(folder: &Path, boot_id: &str, lock: Option<Lock>) -> Result<Self, StorageError> {
        fs::create_dir_all(folder).map_err(StorageError::of("create", folder))?;
        files::remove_leftovers(folder)?;
        let marker = folder.join("boot");
        // Without the marker the boot is unknown. Assuming the same boot never allocates a GPU twice.
        let is_new_boot = fs::read_to_string(&marker).is_ok_and(|last| {
            let last = last.trim();
            !last.is_empty() && last != boot_id
        });
        Ok(Self {
            folder: folder.to_owned(),
            boot_id: boot_id.to_owned(),
            is_new_boot,
            _lock: lock,
            _records: PhantomData,
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
    pub(crate) fn load(&self) -> Result<Loaded<R>, StorageError> {
        let mut loaded =
            Loaded { records: BTreeMap::new(), forgotten: Vec::new(), damaged: BTreeMap::new() };
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
                Ok(text) => match decode::<R>(&text, uid) {
                    Ok(record) if record.boot_id() == self.boot_id => {
                        loaded.records.insert(uid.to_owned(), record);
                    }
                    Ok(_) => loaded.forgotten.push(uid.to_owned()),
                    Err(damage) => {
                        let claim = format::claim_in(&text, uid);
                        loaded.damaged.insert(uid.to_owned(), Damaged { damage, claim });
                    }
                },
            }
        }
        Ok(loaded)
    }

    /// Records that this boot uses the folder. Call it after everything of an earlier boot was handled.
    pub(crate) fn mark_boot(&self) -> Result<(), StorageError> {
        let marker = self.folder.join("boot");
        if fs::read_to_string(&marker).is_ok_and(|last| last == self.boot_id) {
            return Ok(());
        }
        write_atomically(&marker, self.boot_id.as_bytes(), true)
    }

    /// Writes a claim's file. The file is on disk when this returns.
    pub(crate) fn write(&self, record: &R) -> Result<(), StorageError> {
        write_atomically(&self.path(&record.claim().uid), encode(record).as_bytes(), true)
    }

    /// Removes a claim's file if it exists.
    ///
    /// Nothing is flushed: a file that reappears after a power failure belongs to an earlier boot.
    pub(crate) fn remove(&self, uid: &str) -> Result<(), StorageError> {
        let path = self.path(uid);
        remove(&path)
    }

    /// Whether a claim's file is unchanged since it was written.
    pub(crate) fn is_intact(&self, record: &R) -> bool {
        fs::read(self.path(&record.claim().uid)).is_ok_and(|text| text == encode(record).as_bytes())
    }

    /// Moves a damaged file aside and writes `replacement` in its place, if given. The claim always has a file in
    /// between, so that a crash cannot lose its possible devices.
    pub(crate) fn quarantine(
        &self,
        uid: &str,
        damage: Damage,
        replacement: Option<&R>,
    ) -> Result<PathBuf, StorageError> {
        let path = self.path(uid);
        let kept = self.folder.join("kept");
        fs::create_dir_all(&kept).map_err(StorageError::of("create", &kept))?;
        let aside = kept.join(format!("{uid}.json.{}", damage.as_str()));
        files::keep(&path, &aside)?;
        match replacement {
            Some(record) => {
                if path.is_dir() {
                    // A rename cannot replace a folder by a file.
                    let _ = fs::remove_dir_all(&path);
                }
                self.write(record)?;
            }
            None => remove(&path)?,
        }
        Ok(aside)
    }

    /// The file of a claim.
    pub(crate) fn path(&self, uid: &str) -> PathBuf {
        self.folder.join(format!("{uid}.json"))
    }
}
