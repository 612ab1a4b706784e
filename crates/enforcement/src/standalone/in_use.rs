//! Which standalone shares are in use, and the lock under which they are made, removed and looked for.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::request::ShareRequest;

/// The file of a run root that the commands of a share lock.
pub(super) const USE_LOCK: &str = "lock";

/// The file of the folder of all shares that [`FolderLock`] locks.
const FOLDER_LOCK: &str = ".turn";

/// The lock of the folder of all shares, until it is dropped. A look at a share locks its file for a moment, which commands and other
/// looks would take for a use.
#[derive(Debug)]
pub(super) struct FolderLock {
    folder: PathBuf,
    /// Locked while it is open.
    _file: File,
}

impl FolderLock {
    /// Waits for it.
    pub(super) fn take(folder: &Path) -> io::Result<Self> {
        let file = File::create(folder.join(FOLDER_LOCK))?;
        file.lock()?;
        Ok(Self { folder: folder.to_owned(), _file: file })
    }

    /// Takes it; `None` if another one has it.
    pub(super) fn try_take(folder: &Path) -> io::Result<Option<Self>> {
        let file = File::create(folder.join(FOLDER_LOCK))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { folder: folder.to_owned(), _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// What the shares in use ask for, by their run roots. One that was killed leaves its files until the next boot.
    pub(super) fn requests(&self) -> io::Result<BTreeMap<PathBuf, ShareRequest>> {
        let roots = fs::read_dir(&self.folder)?;
        let roots = roots.filter_map(|entry| entry.ok().map(|entry| entry.path()));
        let used = roots.filter(|root| is_used(root));
        Ok(used.filter_map(|root| ShareRequest::read(&root).map(|share| (root, share))).collect())
    }
}

/// Whether a command uses the share with this run root, or a program that it has started.
fn is_used(root: &Path) -> bool {
    File::open(root.join(USE_LOCK)).is_ok_and(|lock| lock.try_lock().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_looks_for_shares() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::take(folder.path()).unwrap();
        assert!(FolderLock::try_take(folder.path()).unwrap().is_none());
        drop(lock);
        assert!(FolderLock::try_take(folder.path()).unwrap().is_some());
    }

    #[test]
    fn a_share_is_in_use_while_its_file_is_locked() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::take(folder.path()).unwrap();
        let root = folder.path().join("a");
        fs::create_dir(&root).unwrap();
        let request = super::super::request::tests::asked(&root, "--memory 1Gi").unwrap();
        request.write(&root).unwrap();
        assert!(lock.requests().unwrap().is_empty(), "nothing was ever locked");
        let used = File::create(root.join(USE_LOCK)).unwrap();
        assert!(lock.requests().unwrap().is_empty());
        used.lock_shared().unwrap();
        assert_eq!(lock.requests().unwrap(), BTreeMap::from([(root, request)]));
    }
}
