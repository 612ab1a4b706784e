//! Locks on the slots of a state file.
//!
//! A lock belongs to the open file description with which it was taken, and ends with its last
//! reference. A descriptor is no safe reference: programs close all files that they did not open,
//! and children of a fork inherit it. So a mapping of the open file keeps the lock of this
//! process's slot: only this process has it, and programs do not close it. The descriptor is closed
//! at once. To clear slots of dead processes, the file is opened again.

use core::ptr::NonNull;

use octavo_guard_abi::ledger::SlotLocks;
use octavo_guard_abi::state::lock_offset;

use crate::paths::Path;
use crate::platform::sys::file::{File, Identity, Mode};
use crate::platform::sys::{Errno, memory};
use crate::process::RecordedDescriptor;

/// A mapping that keeps an open file, and the locks taken with it.
#[derive(Debug)]
pub(super) struct HeldLocks {
    place: NonNull<u8>,
}

// JUSTIFICATION: a pointer to mapped memory prevents `Send`.
// SAFETY: the memory is never read or written, and is unmapped once, by the owner of the value.
unsafe impl Send for HeldLocks {}
// JUSTIFICATION: as above.
// SAFETY: a shared reference allows no operation.
unsafe impl Sync for HeldLocks {}

impl Drop for HeldLocks {
    fn drop(&mut self) {
        // JUSTIFICATION: mapped memory is unmapped by hand.
        // SAFETY: no reference to it exists.
        unsafe { memory::unmap(self.place, memory::PIN_BYTES) };
    }
}

/// A state file that was opened for its locks. Other threads may close its descriptor at any time
/// and reuse the number.
pub(super) struct Locks {
    file: Option<File>,
    identity: Identity,
    held_lock: Option<HeldLocks>,
    /// Dropped after the descriptor is closed.
    _recorded: RecordedDescriptor,
}

impl Locks {
    /// Opens a state file; `None` if it is not the file with this identity.
    pub(super) fn of(path: &Path, identity: Identity) -> Result<Option<Self>, Errno> {
        let file = File::open(path.text(), Mode::Write)?;
        if file.identity()?.1 != identity {
            return Ok(None);
        }
        // A child that another thread forks now would have the locks, too.
        let recorded = RecordedDescriptor::new(file.descriptor(), identity);
        let mut locks = Self { file: Some(file), identity, held_lock: None, _recorded: recorded };
        let place = locks.file.as_ref().map_or(Err(Errno(9)), memory::pin_open_file)?;
        locks.held_lock = Some(HeldLocks { place });
        Ok(Some(locks))
    }

    /// Closes the descriptor and keeps the locks.
    pub(super) fn into_held(mut self) -> Option<HeldLocks> {
        self.held_lock.take()
    }

    /// Whether the descriptor still refers to the file.
    fn is_open(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| file.identity().is_ok_and(|(_, is)| is == self.identity))
    }
}

impl SlotLocks for Locks {
    fn try_lock(&self, slot: usize) -> bool {
        let Some(file) = &self.file else { return false };
        if file.lock(lock_offset(slot)).is_err() {
            return false;
        }
        // A lock taken before this check belongs to the file, if the descriptor still refers to it.
        let is_ours = self.is_open();
        if !is_ours {
            self.unlock(slot);
        }
        is_ours
    }

    fn unlock(&self, slot: usize) {
        if let Some(file) = &self.file {
            let _ = file.unlock(lock_offset(slot));
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        let is_open = self.is_open();
        if let Some(file) = self.file.take()
            && !is_open
        {
            // The descriptor belongs to the program by now.
            file.into_descriptor();
        }
    }
}
