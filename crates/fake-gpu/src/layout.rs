//! What lies in the file. Every member is atomic: other processes write while this one reads.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Processes that may use a chip at a time.
pub const SLOTS: usize = 1024;

/// Pieces of memory that may be shared between processes at a time.
pub const BLOCKS: usize = 1024;

/// Changes of a process's part of the chip that are remembered.
pub(crate) const SEGMENTS: usize = 64;

/// First word of the file: `OCTCHIP` and the version of the layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"OCTCHIP\x01");

/// Bytes of the file.
pub(crate) const SIZE: usize = size_of::<Layout>();

#[repr(C)]
pub(crate) struct Layout {
    pub(crate) header: Header,
    pub(crate) slots: [Slot; SLOTS],
    pub(crate) blocks: [Block; BLOCKS],
}

#[repr(C, align(4096))]
pub(crate) struct Header {
    /// [`MAGIC`], stored last when the file is made.
    pub(crate) magic: AtomicU64,
    /// Bytes of the file, so that a reader of another layout of the same version notices.
    pub(crate) size: AtomicU64,
    /// Bytes of memory that processes can have.
    pub(crate) capacity: AtomicU64,
    /// One more than the slot of the process that holds the chip's lock; 0: nobody.
    pub(crate) lock: AtomicU32,
    /// Slots beyond this one were never used.
    pub(crate) slots_used: AtomicU32,
    /// Blocks beyond this one were never used.
    pub(crate) blocks_used: AtomicU32,
    /// Bytes of all slots and blocks together; changed under the lock.
    pub(crate) total: AtomicU64,
    /// The virtual clock in nanoseconds; stands still on a chip with a wall clock.
    pub(crate) now: AtomicU64,
    /// How far work is accounted for, on the chip's clock.
    pub(crate) served_until: AtomicU64,
    /// Nanoseconds in which there was work.
    pub(crate) busy: AtomicU64,
}

/// One process.
#[repr(C, align(128))]
pub(crate) struct Slot {
    /// 1: in use.
    pub(crate) state: AtomicU32,
    /// The process's id as it sees itself.
    pub(crate) pid: AtomicU32,
    /// Inode of its process namespace.
    pub(crate) namespace: AtomicU64,
    /// When it started, in clock ticks since boot.
    pub(crate) started: AtomicU64,
    /// Contexts that it has on the chip.
    pub(crate) contexts: AtomicU32,
    /// Bytes that it has, but for shared blocks.
    pub(crate) used: AtomicU64,
    /// Work submitted so far, in nanoseconds of chip time.
    pub(crate) submitted: AtomicU64,
    /// Work done so far.
    pub(crate) served: AtomicU64,
    /// Segments written so far; the last ones lie in the ring.
    pub(crate) segments_written: AtomicU64,
    pub(crate) segments: [Segment; SEGMENTS],
}

/// A stretch of time in which a process had the same part of the chip.
#[repr(C)]
pub(crate) struct Segment {
    /// When it began.
    pub(crate) at: AtomicU64,
    /// Work of the process that was done by then.
    pub(crate) served: AtomicU64,
    /// How many processes had work.
    pub(crate) sharers: AtomicU64,
}

/// Memory that lives as long as any of several processes holds it.
#[repr(C)]
pub(crate) struct Block {
    /// 1: in use.
    pub(crate) state: AtomicU32,
    /// One more than the slot of the process that it counts for.
    pub(crate) owner: AtomicU32,
    pub(crate) bytes: AtomicU64,
    /// Device and inode of the file with the block's contents.
    pub(crate) device: AtomicU64,
    pub(crate) inode: AtomicU64,
}
