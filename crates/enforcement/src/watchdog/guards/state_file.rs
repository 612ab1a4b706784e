//! A share's `state` file, which containers write. The agent reads copies: truncating a mapped file would kill its
//! reader.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::{offset_of, size_of};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use octavo_guard_abi::STATE_FILE;
use octavo_guard_abi::state::{self, Damage, SLOTS, Slot, SlotCopy, State};

use crate::watchdog::overflow::StateDamage;

/// A share's state file, open while the share is monitored.
#[derive(Debug)]
pub(in crate::watchdog) struct StateFile {
    path: PathBuf,
    file: File,
    generation: u64,
}

/// Buffer for a copy of a state file, reused for all shares.
#[derive(Debug)]
pub(in crate::watchdog) struct StateBuffer(Vec<u8>);

impl Default for StateBuffer {
    fn default() -> Self {
        Self(vec![0; state::SIZE])
    }
}

impl StateFile {
    /// Opens the state file in a share's folder, whatever its content.
    pub(in crate::watchdog) fn open(folder: &Path, generation: u64) -> io::Result<Self> {
        let path = folder.join(STATE_FILE);
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let open = |is_written| {
            OpenOptions::new().read(true).write(is_written).custom_flags(flags).open(&path)
        };
        // Write access is needed only for truncating it.
        let file = open(true).or_else(|_| open(false))?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no plain file"));
        }
        Ok(Self { path, file, generation })
    }

    /// Truncates a file that a container extended, since it occupies host memory.
    pub(in crate::watchdog) fn truncate_to_size(&self) -> io::Result<()> {
        let size = state::SIZE as u64;
        if self.file.metadata()?.len() > size { self.file.set_len(size) } else { Ok(()) }
    }

    /// Reads the slots that processes have.
    pub(in crate::watchdog) fn slots(
        &self,
        copy: &mut StateBuffer,
    ) -> Result<Vec<SlotCopy>, StateDamage> {
        let damaged = |_| StateDamage::Damaged(Damage::Size);
        let opened = self.file.metadata().map_err(damaged)?;
        let named = fs::symlink_metadata(&self.path).map_err(|_| StateDamage::Gone)?;
        if (opened.dev(), opened.ino()) != (named.dev(), named.ino()) {
            return Err(StateDamage::Gone);
        }
        if opened.len() != state::SIZE as u64 {
            return Err(StateDamage::Damaged(Damage::Size));
        }
        let bytes = &mut copy.0;
        // The header contains the number of slots ever used. Only those are read, so a share with few processes is
        // cheap. Later slots belong to an earlier share and are ignored.
        let first = offset_of!(State, slots);
        self.file.read_exact_at(&mut bytes[..first], 0).map_err(damaged)?;
        let mut high = [0; 8];
        high.copy_from_slice(&bytes[offset_of!(State, high)..][..8]);
        let taken = usize::try_from(u64::from_ne_bytes(high)).unwrap_or(SLOTS).min(SLOTS);
        let end = first + taken * size_of::<Slot>();
        self.file.read_exact_at(&mut bytes[first..end], first as u64).map_err(damaged)?;
        Ok(state::slots(bytes, self.generation).map_err(StateDamage::Damaged)?.collect())
    }
}

/// Bytes in all slots.
pub(in crate::watchdog) fn bytes(slots: &[SlotCopy]) -> u64 {
    slots.iter().fold(0, |sum, slot| sum.saturating_add(slot.used_bytes))
}

#[cfg(test)]
mod tests;
