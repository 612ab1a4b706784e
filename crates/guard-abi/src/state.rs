//! The state file: one slot per process of a share.
//!
//! The holder of the write lock on a slot's byte ([`lock_offset`]) owns the slot. It is a lock of
//! the open file description (`F_OFD_SETLK`), which the kernel drops when the process ends, however
//! it ends. Slots never move. After a death nothing else needs repair: a slot whose lock is free is
//! empty, whatever it contains.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::VERSION;
use crate::limits::{u32_at, u64_at};

/// First word of the file: `OCTSTA` and two zero bytes.
pub const MAGIC: u64 = u64::from_ne_bytes(*b"OCTSTA\0\0");

/// Slots of a share: the number of concurrent processes in all its containers.
pub const SLOTS: usize = SLOT_COUNT as usize;

/// The same number, as stored in the file.
const SLOT_COUNT: u32 = 1024;

/// Size of the file in bytes.
pub const SIZE: usize = size_of::<State>();

/// Offset of the byte whose lock owns a slot. It lies far beyond the end of the file, where no
/// write lands.
pub const fn lock_offset(slot: usize) -> u64 {
    (1 << 32) + slot as u64
}

/// The file.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct State {
    magic: AtomicU64,
    version: AtomicU32,
    slot_count: AtomicU32,
    generation: AtomicU64,
    /// One more than the highest slot ever claimed.
    pub high: AtomicU64,
    _reserved: [AtomicU64; 12],
    /// The slots.
    pub slots: [Slot; SLOTS],
}

/// Usage of one process.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Slot {
    /// Bytes charged to the process, contexts included.
    pub used_bytes: AtomicU64,
    /// Bytes of these charged for contexts.
    pub context_bytes: AtomicU64,
    /// Highest value of `used_bytes` so far.
    pub peak_bytes: AtomicU64,
    /// Pid in the process's own pid namespace; 0 if the slot is free.
    pub pid: AtomicU64,
    /// Start time in clock ticks since boot (field 22 of `/proc/self/stat`).
    pub start_time: AtomicU64,
    /// Inode of its pid namespace.
    pub pid_namespace: AtomicU64,
    /// Allocations that were refused.
    pub refused: AtomicU64,
    /// Calls of functions unknown to the guard.
    pub unknown: AtomicU64,
    /// Kernels and graphs launched, where they are counted.
    pub launches: AtomicU64,
    /// Launches that have not ended, where they are counted.
    pub in_flight: AtomicU64,
    /// The last epoch of the gate that the process has acknowledged.
    pub epoch: AtomicU64,
    _reserved: [AtomicU64; 5],
}

const _: () = assert!(size_of::<Slot>() == 128 && offset_of!(State, slots) == 128);

/// Why a state file cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// It is shorter or longer than [`SIZE`].
    Size,
    /// It does not begin with [`MAGIC`].
    Magic,
    /// It has another version or another number of slots.
    Version(u32),
    /// It belongs to another generation of the share.
    Generation(u64),
}

impl State {
    /// Checks that the file is still the one that the agent created for this generation.
    pub fn check(&self, generation: u64) -> Result<(), Damage> {
        let header = Header {
            magic: self.magic.load(Ordering::Relaxed),
            version: self.version.load(Ordering::Relaxed),
            slot_count: self.slot_count.load(Ordering::Relaxed),
            generation: self.generation.load(Ordering::Relaxed),
        };
        header.check(generation)
    }
}

/// The first words of a file.
struct Header {
    magic: u64,
    version: u32,
    slot_count: u32,
    generation: u64,
}

impl Header {
    fn check(&self, generation: u64) -> Result<(), Damage> {
        if self.magic != MAGIC {
            return Err(Damage::Magic);
        }
        if self.version != VERSION || self.slot_count != SLOT_COUNT {
            return Err(Damage::Version(self.version));
        }
        if self.generation != generation {
            return Err(Damage::Generation(self.generation));
        }
        Ok(())
    }
}

/// The first bytes of a new file; the remaining bytes of its [`SIZE`] are zero.
pub fn header(generation: u64) -> [u8; offset_of!(State, high)] {
    let mut bytes = [0; offset_of!(State, high)];
    let mut put = |offset: usize, value: &[u8]| {
        bytes[offset..][..value.len()].copy_from_slice(value);
    };
    put(offset_of!(State, magic), &MAGIC.to_ne_bytes());
    put(offset_of!(State, version), &VERSION.to_ne_bytes());
    put(offset_of!(State, slot_count), &SLOT_COUNT.to_ne_bytes());
    put(offset_of!(State, generation), &generation.to_ne_bytes());
    bytes
}

/// Copy of a slot. The container may have written any values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotCopy {
    /// Index of the slot.
    pub index: usize,
    /// As in [`Slot`].
    pub used_bytes: u64,
    /// As in [`Slot`].
    pub context_bytes: u64,
    /// As in [`Slot`].
    pub peak_bytes: u64,
    /// As in [`Slot`].
    pub pid: u64,
    /// As in [`Slot`].
    pub start_time: u64,
    /// As in [`Slot`].
    pub pid_namespace: u64,
    /// As in [`Slot`].
    pub refused: u64,
    /// As in [`Slot`].
    pub unknown: u64,
    /// As in [`Slot`].
    pub launches: u64,
}

/// The slots that have a process, from a copy of the file.
pub fn slots(file: &[u8], generation: u64) -> Result<impl Iterator<Item = SlotCopy>, Damage> {
    if file.len() != SIZE {
        return Err(Damage::Size);
    }
    let header = Header {
        magic: u64_at(file, offset_of!(State, magic)),
        version: u32_at(file, offset_of!(State, version)),
        slot_count: u32_at(file, offset_of!(State, slot_count)),
        generation: u64_at(file, offset_of!(State, generation)),
    };
    header.check(generation)?;
    let high = u64_at(file, offset_of!(State, high));
    let high = usize::try_from(high).unwrap_or(SLOTS).min(SLOTS);
    let slots = (0..high).map(|index| {
        let slot = &file[offset_of!(State, slots) + index * size_of::<Slot>()..];
        SlotCopy {
            index,
            used_bytes: u64_at(slot, offset_of!(Slot, used_bytes)),
            context_bytes: u64_at(slot, offset_of!(Slot, context_bytes)),
            peak_bytes: u64_at(slot, offset_of!(Slot, peak_bytes)),
            pid: u64_at(slot, offset_of!(Slot, pid)),
            start_time: u64_at(slot, offset_of!(Slot, start_time)),
            pid_namespace: u64_at(slot, offset_of!(Slot, pid_namespace)),
            refused: u64_at(slot, offset_of!(Slot, refused)),
            unknown: u64_at(slot, offset_of!(Slot, unknown)),
            launches: u64_at(slot, offset_of!(Slot, launches)),
        }
    });
    Ok(slots.filter(|slot| slot.pid != 0))
}

#[cfg(test)]
mod tests;
