//! The lock of a checkpoint folder. Its holder is the node's active agent.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use octavo_node::files::StorageError;

/// A held lock. It is released when the value is dropped, or by the kernel when the process ends.
///
/// The lock can be handed to another process as a file descriptor. The kernel keeps it while any descriptor of this
/// open file description exists, so it is never free in between.
///
/// A forked child has such a descriptor until it calls exec, so closing is not enough. `drop` therefore unlocks
/// explicitly, for all descriptors at once. If the process is killed at that moment, the lock is released slightly
/// later.
#[derive(Debug)]
pub(crate) struct Lock {
    file: OwnedFd,
    /// Whether another process has it now.
    is_handed_over: bool,
}

impl Lock {
    /// Acquires the lock of a folder, which is created if missing; `None` while another agent holds it.
    pub(crate) fn take(folder: &Path) -> Result<Option<Self>, StorageError> {
        fs::create_dir_all(folder).map_err(StorageError::of("create", folder))?;
        let path = folder.join("lock");
        loop {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
            let file = OwnedFd::from(file.map_err(StorageError::of("create", &path))?);
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(StorageError::of("lock", &path)(errno.into())),
            }
            // The file may have been removed since it was opened. A lock on a removed file excludes no other agent.
            if is_at(&file, &path) {
                return Ok(Some(Self { file, is_handed_over: false }));
            }
        }
    }

    /// Takes over a lock that another process holds and sent as `file`.
    pub(crate) fn adopt(folder: &Path, file: OwnedFd) -> Result<Self, StorageError> {
        let path = folder.join("lock");
        let refused = |why: &str| StorageError::of("take over", &path)(io::Error::other(why));
        if !is_at(&file, &path) {
            return Err(refused("what was handed over is another file"));
        }
        // This succeeds without effect if `file` holds the lock, and fails otherwise.
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| refused("what was handed over does not hold the lock"))?;
        Ok(Self { file, is_handed_over: false })
    }

    /// Gives up a lock whose descriptor was sent to another process, without unlocking.
    pub(crate) fn handed_over(mut self) {
        self.is_handed_over = true;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.is_handed_over {
            // It cannot fail for a file that is open.
            let _ = flock(&self.file, FlockOperation::NonBlockingUnlock);
        }
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Whether a path leads to an open file.
fn is_at(file: &OwnedFd, path: &Path) -> bool {
    let Ok(open) = rustix::fs::fstat(file) else { return false };
    fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == (open.st_dev, open.st_ino))
}
