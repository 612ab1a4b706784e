//! The locks of a state file's slots.
//!
//! A lock belongs to the open file that it was taken through, and goes when nothing refers to that any more. A
//! descriptor would be a poor hold: programs close all that they did not open, and children of forks inherit it.
//! So the lock of this process's slot is held by a mapping of the open file, which is the process's alone and
//! which nobody closes; its descriptor is closed at once. To empty the slots of the dead the file is opened anew.

use core::ptr::NonNull;

use octavo_guard_abi::ledger::SlotLocks;
use octavo_guard_abi::state::lock_offset;

use crate::paths::Path;
use crate::platform::sys::file::{File, Identity, Mode};
use crate::platform::sys::{Errno, memory};
use crate::process;

/// An open file that is held_lock open, with the locks that were taken through it.
#[derive(Debug)]
pub(super) struct HeldLocks {
    place: NonNull<u8>,
}

// JUSTIFICATION: a pointer to mapped memory keeps a type from being sent.
// SAFETY: nobody reads or writes there; it is given back once, by whoever has the value.
unsafe impl Send for HeldLocks {}
// JUSTIFICATION: as above.
// SAFETY: nothing can be done with a reference.
unsafe impl Sync for HeldLocks {}

impl Drop for HeldLocks {
    fn drop(&mut self) {
        // JUSTIFICATION: mapped memory is given back by hand.
        // SAFETY: nobody refers to it.
        unsafe { memory::unmap(self.place, memory::PIN_BYTES) };
    }
}

/// A state file, opened for its locks. Other threads may close its descriptor at any moment, and open something
/// of their own under its number.
pub(super) struct Locks {
    file: Option<File>,
    identity: Identity,
    held_lock: Option<HeldLocks>,
}

impl Locks {
    /// Opens a state file, which is to be the one that is known.
    pub(super) fn of(path: &Path, identity: Identity) -> Result<Option<Self>, Errno> {
        let file = File::open(path.text(), Mode::Write)?;
        if file.identity()?.1 != identity {
            return Ok(None);
        }
        // A child that another thread makes now would have the locks, too.
        process::set_lock_descriptor(Some((file.descriptor(), identity)));
        let mut locks = Self { file: Some(file), identity, held_lock: None };
        let place = locks.file.as_ref().map_or(Err(Errno(9)), memory::pin_open_file)?;
        locks.held_lock = Some(HeldLocks { place });
        Ok(Some(locks))
    }

    /// Closes the descriptor and keeps the locks.
    pub(super) fn into_held(mut self) -> Option<HeldLocks> {
        self.held_lock.take()
    }

    /// Whether the descriptor is the file's still.
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
        // A lock that is taken before this look is one of the file that is held_lock, if this is that file still.
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
            // The number is the program's by now.
            file.into_descriptor();
        }
        process::set_lock_descriptor(None);
    }
}
