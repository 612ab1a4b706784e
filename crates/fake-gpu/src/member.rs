//! A process's place on a chip.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::chip::{Chip, Clock};
use crate::file::{self, Byte, Kind, Map};
use crate::layout::{SLOTS, Slot};
use crate::mine;

/// A process's place on a chip: its memory and its work. Ends with the process.
#[derive(Debug)]
pub struct Member {
    chip: Chip,
    slot: usize,
    /// How often this process uses each shared block; the lock on its byte stands for all.
    pub(crate) shared: Mutex<BTreeMap<usize, u32>>,
    /// The process's work is certainly not done before this time and all that was submitted
    /// together.
    pub(crate) busy_from: AtomicU64,
}

impl Member {
    pub(crate) fn join(chip: Chip) -> io::Result<Self> {
        let free = (0..SLOTS).find(|&index| take(&chip, index));
        let slot = free.ok_or_else(|| {
            io::Error::other("all places on the chip are taken; end some process that uses it")
        })?;
        let member = Self { chip, slot, shared: Mutex::default(), busy_from: AtomicU64::new(0) };
        let me = mine::identity();
        // A predecessor may have died with the chip's lock.
        let _ = member.map().header.lock.compare_exchange(member.number(), 0, AcqRel, Relaxed);
        let locked = member.lock();
        let place = member.place();
        clear(place);
        locked.disown(slot);
        locked.sum_anew();
        place.pid.store(me.pid, Relaxed);
        place.namespace.store(me.namespace, Relaxed);
        place.started.store(me.started, Relaxed);
        place.state.store(1, Release);
        let used = &member.map().header.slots_used;
        used.fetch_max(member.number(), AcqRel);
        locked.reap();
        locked.restart_clock();
        drop(locked);
        Ok(member)
    }

    /// To be called in a child of `fork`: the parent alone is in the slot, and its life alone
    /// must keep it. Afterwards nothing of this member may be used.
    pub fn leave_in_child(&self) {
        file::close_in_child(&self.chip.file);
    }

    /// Memory in bytes that processes can have together.
    pub fn capacity(&self) -> u64 {
        self.chip.capacity()
    }

    /// The chip's clock in nanoseconds.
    pub fn now(&self) -> u64 {
        self.chip.now()
    }

    /// Whether the chip's clock jumps.
    pub fn is_virtual(&self) -> bool {
        self.chip.clock == Clock::Virtual
    }

    /// Counts one more context of this process.
    pub fn add_context(&self) {
        self.place().contexts.fetch_add(1, AcqRel);
    }

    /// Counts one context less.
    pub fn remove_context(&self) {
        self.place().contexts.fetch_sub(1, AcqRel);
    }

    pub(crate) fn map(&self) -> &Map {
        &self.chip.map
    }

    pub(crate) fn file(&self) -> &File {
        &self.chip.file
    }

    pub(crate) fn clock(&self) -> Clock {
        self.chip.clock
    }

    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// One more than the slot: what stands in the chip's lock.
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.slot + 1).unwrap_or(u32::MAX)
    }

    pub(crate) fn place(&self) -> &Slot {
        &self.chip.map.slots[self.slot]
    }
}

/// Locks a slot that nobody holds.
fn take(chip: &Chip, index: usize) -> bool {
    let byte = Byte::Slot(index);
    let looks_used = chip.map.slots[index].state.load(Acquire) != 0;
    if looks_used && file::is_held(&chip.file, byte) {
        return false;
    }
    file::lock(&chip.file, byte, Kind::Write, false).is_ok()
}

/// Makes a slot as if it had never been used.
pub(crate) fn clear(slot: &Slot) {
    slot.state.store(0, Release);
    slot.contexts.store(0, Relaxed);
    slot.used.store(0, Relaxed);
    slot.submitted.store(0, Relaxed);
    slot.served.store(0, Relaxed);
    slot.segments_written.store(0, Relaxed);
}
