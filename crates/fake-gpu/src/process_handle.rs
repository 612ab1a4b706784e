//! The handle of a process on a GPU.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::file::{self, LockByte, LockKind, Map};
use crate::gpu::{Clock, FakeGpu};
use crate::identity;
use crate::layout::{Queue, SLOTS, Slot};

/// The handle of a process on a GPU: its memory and its work. It ends with the process.
#[derive(Debug)]
pub struct ProcessHandle {
    gpu: FakeGpu,
    slot: usize,
    /// Uses of each shared block by this process. One lock on its byte stands for all.
    pub(crate) shared: Mutex<BTreeMap<usize, u32>>,
    /// The process's work is not done before this time plus everything submitted so far. Its lock orders submissions.
    pub(crate) busy_from: Mutex<u64>,
}

impl ProcessHandle {
    pub(crate) fn attach(gpu: FakeGpu) -> io::Result<Self> {
        let free = (0..SLOTS).find(|&index| take(&gpu, index));
        let index = free.ok_or_else(|| {
            io::Error::other("all process slots of the GPU are in use; end a process that uses it")
        })?;
        let process = Self { gpu, slot: index, shared: Mutex::default(), busy_from: Mutex::new(0) };
        let identity = identity::current();
        // A previous process in this slot may have died with the GPU's lock.
        let _ = process.map().header.lock.compare_exchange(process.number(), 0, AcqRel, Relaxed);
        let locked = process.lock();
        let slot = process.slot();
        clear(slot, process.queue());
        locked.stop(index);
        locked.disown(index);
        locked.recompute_total();
        slot.pid.store(identity.pid, Relaxed);
        slot.namespace.store(identity.namespace, Relaxed);
        slot.started.store(identity.started, Relaxed);
        slot.state.store(1, Release);
        let used = &process.map().header.slots_used;
        used.fetch_max(process.number(), AcqRel);
        locked.reap();
        locked.restart_clock();
        drop(locked);
        Ok(process)
    }

    /// Must be called in a child of `fork`: the slot belongs to the parent and must end with it.
    /// The handle must not be used afterwards.
    pub fn leave_in_child(&self) {
        file::close_in_child(&self.gpu.file);
    }

    /// Memory that processes can have in total, in bytes.
    pub fn capacity(&self) -> u64 {
        self.gpu.capacity()
    }

    /// Time of the GPU's clock, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.gpu.now()
    }

    /// Whether the GPU's clock is virtual.
    pub fn is_virtual(&self) -> bool {
        self.gpu.clock == Clock::Virtual
    }

    /// Counts one more context of this process.
    pub fn add_context(&self) {
        self.slot().contexts.fetch_add(1, AcqRel);
    }

    /// Counts one context less.
    pub fn remove_context(&self) {
        self.slot().contexts.fetch_sub(1, AcqRel);
    }

    pub(crate) fn map(&self) -> &Map {
        &self.gpu.map
    }

    pub(crate) fn file(&self) -> &File {
        &self.gpu.file
    }

    pub(crate) fn fabric(&self) -> &Path {
        &self.gpu.fabric
    }

    pub(crate) fn clock(&self) -> Clock {
        self.gpu.clock
    }

    pub(crate) fn slot_index(&self) -> usize {
        self.slot
    }

    /// The slot's index plus one, as stored in the GPU's lock.
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.slot + 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.gpu.map.queues[self.slot]
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.gpu.map.slots[self.slot]
    }
}

/// Locks a slot without an owner.
fn take(gpu: &FakeGpu, index: usize) -> bool {
    let byte = LockByte::Slot(index);
    let looks_used = gpu.map.slots[index].state.load(Acquire) != 0;
    if looks_used && file::is_held(&gpu.file, byte) {
        return false;
    }
    file::lock(&gpu.file, byte, LockKind::Write, false).is_ok()
}

/// Resets a slot and its queue.
pub(crate) fn clear(slot: &Slot, queue: &Queue) {
    slot.state.store(0, Release);
    slot.contexts.store(0, Relaxed);
    slot.used.store(0, Relaxed);
    slot.submitted.store(0, Relaxed);
    slot.done.store(0, Relaxed);
    slot.served.store(0, Relaxed);
    queue.launched.store(0, Relaxed);
    queue.ended.store(0, Relaxed);
}
