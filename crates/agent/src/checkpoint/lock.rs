//! The lock of a checkpoint folder: the agent that holds it is the node's active one.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::StorageError;

/// A held lock. It comes free when the value goes, and with the process however that ends. Handed to another
/// process as a file descriptor it has a new holder and was never free in between: the kernel keeps it as long
/// as any descriptor of this opening of the file is open.
///
/// A child that this process starts has such a descriptor from its fork until it is executed, so closing is not
/// enough: the value gives the lock up by name when it goes, for all descriptors at once. Of a process that is killed
/// just then the lock comes free a moment later.
#[derive(Debug)]
pub(crate) struct Lock {
    file: OwnedFd,
    /// Whether another process has it now.
    is_handed_over: bool,
}

impl Lock {
    /// Takes the lock of a folder, which is made where it is missing; `None` while another agent holds it.
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
            // Somebody may have removed the file since it was opened: a lock without a name keeps nobody out.
            if is_at(&file, &path) {
                return Ok(Some(Self { file, is_handed_over: false }));
            }
        }
    }

    /// Takes over a lock that another process held and gave with `file`.
    pub(crate) fn adopt(folder: &Path, file: OwnedFd) -> Result<Self, StorageError> {
        let path = folder.join("lock");
        let refused = |why: &str| StorageError::of("take over", &path)(io::Error::other(why));
        if !is_at(&file, &path) {
            return Err(refused("what was handed over is another file"));
        }
        // For whoever holds it already this changes nothing; for anybody else it fails.
        flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| refused("what was handed over does not hold the lock"))?;
        Ok(Self { file, is_handed_over: false })
    }

    /// Lets go of a lock that another process has by a descriptor that was sent to it.
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
