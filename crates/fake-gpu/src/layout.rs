//! Layout of the file. Every field is atomic: other processes write while this one reads.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// Maximum number of concurrent processes.
pub const SLOTS: usize = 1024;

/// Maximum number of shared blocks.
pub const BLOCKS: usize = 1024;

/// Kernels of a process that the file has room for: those that have not ended, and the last ones that have.
pub(crate) const KERNELS: usize = 2048;

/// First word of the file: `OCTCHIP` and the version of the layout.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"OCTCHIP\x03");

/// Size of the file in bytes.
pub(crate) const SIZE: usize = size_of::<Layout>();

#[repr(C)]
pub(crate) struct Layout {
    pub(crate) header: Header,
    pub(crate) slots: [Slot; SLOTS],
    pub(crate) blocks: [Block; BLOCKS],
    /// Of the processes in the slots.
    pub(crate) queues: [Queue; SLOTS],
}

#[repr(C, align(4096))]
pub(crate) struct Header {
    /// [`MAGIC`], stored last when the file is created.
    pub(crate) magic: AtomicU64,
    /// Size of the file in bytes. It detects another layout of the same version.
    pub(crate) size: AtomicU64,
    /// Memory that processes can have, in bytes.
    pub(crate) capacity: AtomicU64,
    /// Slot of the process that holds the GPU's lock, plus one; 0 if it is free.
    pub(crate) lock: AtomicU32,
    /// Slots from this one on were never used.
    pub(crate) slots_used: AtomicU32,
    /// Blocks from this one on were never used.
    pub(crate) blocks_used: AtomicU32,
    /// Bytes of all slots and blocks; changed under the lock.
    pub(crate) total: AtomicU64,
    /// The virtual clock in nanoseconds; unused with the host's clock.
    pub(crate) now: AtomicU64,
    /// Time up to which work is accounted for, on the GPU's clock.
    pub(crate) served_until: AtomicU64,
    /// Time with work, in nanoseconds.
    pub(crate) busy: AtomicU64,
    /// Slot of the process whose kernel runs, plus one; 0 if none runs.
    pub(crate) running: AtomicU32,
    /// When that kernel begins and ends, and when the turn of its process ends.
    pub(crate) begins: AtomicU64,
    pub(crate) ends: AtomicU64,
    pub(crate) slice_ends: AtomicU64,
}

/// One process.
#[repr(C, align(128))]
pub(crate) struct Slot {
    /// 1 if in use.
    pub(crate) state: AtomicU32,
    /// Pid in the process's own namespace.
    pub(crate) pid: AtomicU32,
    /// Inode of its pid namespace.
    pub(crate) namespace: AtomicU64,
    /// Start time in clock ticks since boot.
    pub(crate) started: AtomicU64,
    /// Its contexts on the GPU.
    pub(crate) contexts: AtomicU32,
    /// Its memory in bytes, without shared blocks.
    pub(crate) used: AtomicU64,
    /// Work submitted so far, in nanoseconds of GPU time.
    pub(crate) submitted: AtomicU64,
    /// Work of the kernels that have ended.
    pub(crate) done: AtomicU64,
    /// Time for which the process was served, changes between contexts included.
    pub(crate) served: AtomicU64,
}

/// The kernels of a process, in the order of their launch.
#[repr(C)]
pub(crate) struct Queue {
    /// Kernels launched so far; the last ones are in the ring.
    pub(crate) launched: AtomicU64,
    /// Kernels that have ended.
    pub(crate) ended: AtomicU64,
    pub(crate) kernels: [Kernel; KERNELS],
}

/// A kernel.
#[repr(C)]
pub(crate) struct Kernel {
    /// Work of the process up to its end.
    pub(crate) mark: AtomicU64,
    /// When it ended.
    pub(crate) ended_at: AtomicU64,
}

/// Memory that lives as long as any process uses it.
#[repr(C)]
pub(crate) struct Block {
    /// 1 if in use.
    pub(crate) state: AtomicU32,
    /// Slot of the process that it is charged to, plus one.
    pub(crate) owner: AtomicU32,
    pub(crate) bytes: AtomicU64,
    /// Device and inode of the file with the block's contents.
    pub(crate) device: AtomicU64,
    pub(crate) inode: AtomicU64,
    /// Its allocation in the fabric; 0 if other nodes cannot import it.
    pub(crate) allocation: AtomicU64,
}
