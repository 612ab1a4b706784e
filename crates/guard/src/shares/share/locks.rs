//! The locks of a state file's slots.
//!
//! A lock belongs to the open file that it was taken through, and goes when nothing refers to that any more. A
//! descriptor would be a poor hold: programs close all that they did not open, and children of forks inherit it.
//! So the lock of this process's slot is held by a mapping of the open file, which is the process's alone and
//! which nobody closes; its descriptor is closed at once. To empty the slots of the dead the file is opened anew.

use core::ptr::NonNull;

use octavo_guard_abi::ledger::Owners;
use octavo_guard_abi::state::lock_offset;

use crate::paths::Path;
use crate::process;
use crate::sys::file::{File, Identity, Mode};
use crate::sys::{Errno, memory};

/// An open file that is kept open, with the locks that were taken through it.
#[derive(Debug)]
pub(super) struct Kept {
    place: NonNull<u8>,
}

// JUSTIFICATION: a pointer to mapped memory keeps a type from being sent.
// SAFETY: nobody reads or writes there; it is given back once, by whoever has the value.
unsafe impl Send for Kept {}
// JUSTIFICATION: as above.
// SAFETY: nothing can be done with a reference.
unsafe impl Sync for Kept {}

impl Drop for Kept {
    fn drop(&mut self) {
        // JUSTIFICATION: mapped memory is given back by hand.
        // SAFETY: nobody refers to it.
        unsafe { memory::give_back(self.place, memory::KEPT) };
    }
}

/// A state file, opened for its locks. Other threads may close its descriptor at any moment, and open something
/// of their own under its number.
pub(super) struct Locks {
    file: Option<File>,
    identity: Identity,
    kept: Option<Kept>,
}

impl Locks {
    /// Opens a state file, which is to be the one that is known.
    pub(super) fn of(path: &Path, identity: Identity) -> Result<Option<Self>, Errno> {
        let file = File::open(path.text(), Mode::Write)?;
        if file.identity()?.1 != identity {
            return Ok(None);
        }
        // A child that another thread makes now would have the locks, too.
        process::in_passing(Some((file.descriptor(), identity)));
        let mut locks = Self { file: Some(file), identity, kept: None };
        let place = locks.file.as_ref().map_or(Err(Errno(9)), memory::kept)?;
        locks.kept = Some(Kept { place });
        Ok(Some(locks))
    }

    /// Closes the descriptor and keeps the locks.
    pub(super) fn keep(mut self) -> Option<Kept> {
        self.kept.take()
    }

    /// Whether the descriptor is the file's still.
    fn is_there(&self) -> bool {
        let file = self.file.as_ref();
        file.is_some_and(|file| file.identity().is_ok_and(|(_, is)| is == self.identity))
    }
}

impl Owners for Locks {
    fn take(&self, slot: usize) -> bool {
        let Some(file) = &self.file else { return false };
        if file.lock(lock_offset(slot)).is_err() {
            return false;
        }
        // A lock that is taken before this look is one of the file that is kept, if this is that file still.
        let is_ours = self.is_there();
        if !is_ours {
            self.give_back(slot);
        }
        is_ours
    }

    fn give_back(&self, slot: usize) {
        if let Some(file) = &self.file {
            let _ = file.unlock(lock_offset(slot));
        }
    }
}

impl Drop for Locks {
    fn drop(&mut self) {
        let is_there = self.is_there();
        if let Some(file) = self.file.take()
            && !is_there
        {
            // The number is the program's by now.
            file.keep();
        }
        process::in_passing(None);
    }
}
