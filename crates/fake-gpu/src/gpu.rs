//! Observing a GPU without using it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::fabric;
use crate::file::{self, LockByte, Map};
use crate::layout::{Block, Slot};
use crate::process::Process;
use crate::process_handle::ProcessHandle;

/// The clock of a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// Stands still until a process waits, then jumps to the awaited time. No process sleeps, and a
    /// program takes the same simulated time on every machine.
    #[default]
    Virtual,
    /// The host's monotonic clock: work takes its time, and waiting processes sleep.
    Host,
}

/// An open GPU.
#[derive(Debug)]
pub struct FakeGpu {
    pub(crate) file: File,
    pub(crate) map: Map,
    pub(crate) clock: Clock,
    /// Folder of the memory that other nodes can import.
    pub(crate) fabric: PathBuf,
}

impl FakeGpu {
    /// Path of the file of the GPU with that minor number, in the folder of its machine.
    pub fn path(folder: &Path, minor: u32) -> PathBuf {
        folder.join("chip").join(minor.to_string())
    }

    /// Opens the GPU and creates it if needed. `capacity` is the memory that processes can have, in
    /// bytes.
    ///
    /// # Errors
    ///
    /// The file cannot be created or mapped, or has another version.
    pub fn open(folder: &Path, minor: u32, capacity: u64, clock: Clock) -> io::Result<Self> {
        let (file, map) = file::open(&Self::path(folder, minor), capacity)?;
        Ok(Self { file, map, clock, fabric: fabric::folder(folder) })
    }

    /// Opens the GPU if a process has used it already.
    ///
    /// # Errors
    ///
    /// There is none ([`io::ErrorKind::NotFound`]), it cannot be mapped, or it has another version.
    pub fn existing(folder: &Path, minor: u32, clock: Clock) -> io::Result<Self> {
        let (file, map) = file::open_existing(&Self::path(folder, minor))?;
        Ok(Self { file, map, clock, fabric: fabric::folder(folder) })
    }

    /// Claims a slot for this process.
    ///
    /// # Errors
    ///
    /// All slots are in use, or the file cannot be locked.
    pub fn attach(self) -> io::Result<ProcessHandle> {
        ProcessHandle::attach(self)
    }

    /// Memory that processes can have, in bytes.
    pub fn capacity(&self) -> u64 {
        self.map.header.capacity.load(Relaxed)
    }

    /// Memory of living processes, in bytes.
    pub fn used(&self) -> u64 {
        let slots: u64 = self.living().map(|(_, slot)| slot.used.load(Relaxed)).sum();
        let blocks: u64 = self.living_blocks().map(|(_, block)| block.bytes.load(Relaxed)).sum();
        slots + blocks
    }

    /// Living processes with contexts.
    pub fn processes(&self) -> Vec<Process> {
        let with_contexts = self.living().filter(|(_, slot)| slot.contexts.load(Relaxed) > 0);
        with_contexts.map(|(index, slot)| self.process(index, slot)).collect()
    }

    /// Time of the GPU's clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        match self.clock {
            Clock::Virtual => self.map.header.now.load(Relaxed),
            Clock::Host => wall_clock(),
        }
    }

    /// Time with work until now, in nanoseconds of the GPU's clock.
    pub fn busy(&self) -> u64 {
        let left: u64 = self.living().map(|(_, slot)| backlog(slot)).fold(0, u64::saturating_add);
        self.map.header.busy.load(Relaxed) + self.unaccounted().min(left)
    }

    /// Whether there is work.
    pub fn is_busy(&self) -> bool {
        self.living().any(|(_, slot)| backlog(slot) > 0)
    }

    fn process(&self, index: usize, slot: &Slot) -> Process {
        let owner = u32::try_from(index + 1).unwrap_or(0);
        let blocks = self.living_blocks().filter(|(_, b)| b.owner.load(Relaxed) == owner);
        let shared: u64 = blocks.map(|(_, block)| block.bytes.load(Relaxed)).sum();
        Process {
            pid: slot.pid.load(Relaxed),
            namespace: slot.namespace.load(Relaxed),
            started: slot.started.load(Relaxed),
            contexts: slot.contexts.load(Relaxed),
            used: slot.used.load(Relaxed) + shared,
            served: slot.served.load(Relaxed) + self.gain(slot),
            is_busy: backlog(slot) > 0,
        }
    }

    /// Time since the beginning of the kernel that was the running one when time was last accounted for; 0 if none was.
    fn unaccounted(&self) -> u64 {
        let header = &self.map.header;
        let is_running = header.running.load(Relaxed) != 0;
        if is_running { self.now().saturating_sub(header.begins.load(Relaxed)) } else { 0 }
    }

    /// An estimate of the work of a process that is not yet accounted for, in nanoseconds.
    fn gain(&self, slot: &Slot) -> u64 {
        let since = self.unaccounted();
        let sharers = self.living().filter(|(_, slot)| backlog(slot) > 0).count().max(1);
        let part = since / u64::try_from(sharers).unwrap_or(u64::MAX);
        part.min(backlog(slot))
    }

    fn living(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let used = self.map.header.slots_used.load(Acquire) as usize;
        let slots = self.map.slots.iter().enumerate().take(used);
        slots.filter(|(index, slot)| {
            slot.state.load(Acquire) != 0 && file::is_held(&self.file, LockByte::Slot(*index))
        })
    }

    fn living_blocks(&self) -> impl Iterator<Item = (usize, &Block)> {
        let used = self.map.header.blocks_used.load(Acquire) as usize;
        let blocks = self.map.blocks.iter().enumerate().take(used);
        blocks.filter(|(index, block)| {
            block.state.load(Acquire) != 0
                && (file::is_held(&self.file, LockByte::Block(*index))
                    || fabric::is_imported(&self.fabric, block.allocation.load(Relaxed)))
        })
    }
}

/// Work of a process that is not done, in nanoseconds of GPU time.
pub(crate) fn backlog(slot: &Slot) -> u64 {
    slot.submitted.load(Relaxed).saturating_sub(slot.done.load(Relaxed))
}

/// Time of the host's monotonic clock in nanoseconds, equal for all its processes.
pub(crate) fn wall_clock() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // JUSTIFICATION: the standard library's clock has no number that processes could share.
    // SAFETY: the structure is writable, and this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
