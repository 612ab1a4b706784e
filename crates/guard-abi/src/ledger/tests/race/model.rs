//! A share, the processes that map it, and the kernel, which knows the living ones. Shared words
//! are shuttle's, so that its schedulers may switch at each access.

use std::boxed::Box;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::vec::Vec;

use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::ledger::{
    LimitExceeded, SharedWord, SlotLocks, SlotTable, claim_slot, reap, release, total, try_charge,
};

/// State that the processes of a share have in common.
pub(super) struct Share {
    limit: u64,
    untracked: u64,
    high: AtomicU64,
    used: Vec<AtomicU64>,
    /// The process that has the lock of a slot; 0 for none.
    owners: Vec<AtomicU64>,
    /// The real usage: bytes of the GPU that each process has. Processes do not share it, so
    /// reading it is no step.
    memory: Mutex<BTreeMap<u64, u64>>,
    processes: Mutex<Vec<Arc<Life>>>,
}

impl Share {
    pub(super) fn new(slots: usize, limit: u64, untracked: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            untracked,
            high: AtomicU64::new(0),
            used: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            owners: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            memory: Mutex::default(),
            processes: Mutex::default(),
        })
    }

    /// A new process that lives until it is killed.
    pub(super) fn process(self: &Arc<Self>) -> Process {
        self.process_killed_after(u64::MAX)
    }

    /// A new process that is killed after a number of steps.
    pub(super) fn process_killed_after(self: &Arc<Self>, steps: u64) -> Process {
        let mut processes = self.processes.lock().unwrap();
        let pid = processes.len() as u64 + 1;
        let life = Arc::new(Life { pid, steps: Mutex::new(Some(steps)) });
        processes.push(Arc::clone(&life));
        let shared = |place| Shared { place, share: Arc::clone(self), life: Arc::clone(&life) };
        Process {
            high: shared(Place::High),
            used: (0..self.used.len()).map(|slot| shared(Place::Slot(slot))).collect(),
            share: Arc::clone(self),
            life,
        }
    }

    pub(super) fn kill_all(&self) {
        let processes = self.processes.lock().unwrap().clone();
        for life in &processes {
            life.end(self);
        }
    }

    pub(super) fn kill_all_but(&self, process: &Process) {
        let processes = self.processes.lock().unwrap().clone();
        let others = processes.iter().filter(|life| life.pid != process.life.pid);
        for life in others {
            life.end(self);
        }
    }

    pub(super) fn used(&self, slot: usize) -> u64 {
        self.used[slot].load(SeqCst)
    }

    /// GPU memory of all processes in bytes.
    pub(super) fn held(&self) -> u64 {
        self.memory.lock().unwrap().values().sum()
    }
}

/// Lifetime of a process.
struct Life {
    pid: u64,
    /// Steps left; `None` once it is dead.
    steps: Mutex<Option<u64>>,
}

impl Life {
    fn is_over(&self) -> bool {
        self.steps.lock().unwrap().is_none()
    }

    /// Whether the process lives to take its next step.
    fn step(&self, share: &Share) -> bool {
        let mut steps = self.steps.lock().unwrap();
        match *steps {
            None => false,
            Some(0) => {
                drop(steps);
                self.end(share);
                false
            }
            Some(left) => {
                *steps = Some(left - 1);
                true
            }
        }
    }

    /// The kernel's cleanup after a process: it frees the memory, then the locks.
    fn end(&self, share: &Share) {
        if self.steps.lock().unwrap().take().is_some() {
            share.memory.lock().unwrap().remove(&self.pid);
            for owner in &share.owners {
                let _ = owner.compare_exchange(self.pid, 0, SeqCst, SeqCst);
            }
        }
    }
}

/// Position of a word.
#[derive(Clone, Copy)]
enum Place {
    High,
    Slot(usize),
}

/// A word of the mapped file as seen by one process: a dead process changes nothing.
pub(super) struct Shared {
    place: Place,
    share: Arc<Share>,
    life: Arc<Life>,
}

impl Shared {
    fn step<T: Default>(&self, step: impl FnOnce(&AtomicU64) -> T) -> T {
        if !self.life.step(&self.share) {
            return T::default();
        }
        step(match self.place {
            Place::High => &self.share.high,
            Place::Slot(slot) => &self.share.used[slot],
        })
    }
}

impl SharedWord for Shared {
    fn load(&self) -> u64 {
        self.step(|word| word.load(SeqCst))
    }

    fn store(&self, value: u64) {
        self.step(|word| word.store(value, SeqCst));
    }

    fn add(&self, value: u64) -> u64 {
        self.step(|word| word.fetch_add(value, SeqCst))
    }

    fn sub(&self, value: u64) {
        self.step(|word| {
            let before = word.fetch_sub(value, SeqCst);
            assert!(before >= value, "more is given back than was counted");
        });
    }

    fn raise(&self, value: u64) {
        self.step(|word| {
            word.fetch_max(value, SeqCst);
        });
    }
}

/// A process with a guard.
pub(super) struct Process {
    high: Shared,
    used: Box<[Shared]>,
    share: Arc<Share>,
    life: Arc<Life>,
}

impl SlotTable for Process {
    type Word = Shared;

    fn slots(&self) -> usize {
        self.used.len()
    }

    fn high(&self) -> &Shared {
        &self.high
    }

    fn used(&self, slot: usize) -> &Shared {
        &self.used[slot]
    }

    fn limit(&self) -> u64 {
        self.share.limit
    }

    fn untracked(&self) -> u64 {
        self.share.untracked
    }
}

impl SlotLocks for Process {
    fn try_lock(&self, slot: usize) -> bool {
        self.life.step(&self.share)
            && self.share.owners[slot].compare_exchange(0, self.life.pid, SeqCst, SeqCst).is_ok()
    }

    fn unlock(&self, slot: usize) {
        if self.life.step(&self.share) {
            self.share.owners[slot].store(0, SeqCst);
        }
    }
}

impl Process {
    /// Claims a slot; `None` also if the process is killed meanwhile.
    pub(super) fn claim_slot(&self) -> Option<usize> {
        claim_slot(self, self).filter(|_| !self.life.is_over())
    }

    /// Allocates like the guard: first the ledger, then the driver.
    pub(super) fn allocate(&self, slot: usize, bytes: u64) -> Result<(), LimitExceeded> {
        self.allocate_with(slot, bytes, |_| self.reap(slot))
    }

    pub(super) fn allocate_with(
        &self,
        slot: usize,
        bytes: u64,
        before_retry: impl FnMut(u32),
    ) -> Result<(), LimitExceeded> {
        let granted = try_charge(self, slot, bytes, before_retry);
        match granted {
            Ok(()) => self.record_allocation(bytes),
            Err(LimitExceeded { used }) if !self.life.is_over() => {
                assert!(used + bytes > self.share.limit, "refused with room: {used} are used");
            }
            Err(_) => {}
        }
        granted
    }

    /// One attempt to charge an allocation.
    pub(super) fn try_charge_once(&self, slot: usize, bytes: u64) -> bool {
        SharedWord::add(&self.used[slot], bytes);
        let fits = total(self) <= self.share.limit;
        if fits {
            self.record_allocation(bytes);
        } else {
            self.used[slot].sub(bytes);
        }
        fits
    }

    /// Records memory that the driver has allocated, which must be within the limit.
    pub(super) fn record_allocation(&self, bytes: u64) {
        if self.life.is_over() {
            return;
        }
        let mut memory = self.share.memory.lock().unwrap();
        *memory.entry(self.life.pid).or_default() += bytes;
        let held: u64 = memory.values().sum();
        drop(memory);
        let (limit, untracked) = (self.share.limit, self.share.untracked);
        assert!(held + untracked <= limit, "over-granted: {held} and {untracked} of {limit}");
    }

    /// Frees like the guard: first the driver, then the ledger.
    pub(super) fn free(&self, slot: usize, bytes: u64) {
        if let Some(held) = self.share.memory.lock().unwrap().get_mut(&self.life.pid) {
            *held -= bytes;
        }
        release(self, slot, bytes);
    }

    pub(super) fn reap(&self, slot: usize) {
        reap(self, self, slot);
    }

    pub(super) fn kill(&self) {
        self.life.end(&self.share);
    }

    /// Its GPU memory in bytes.
    pub(super) fn held(&self) -> u64 {
        self.share.memory.lock().unwrap().get(&self.life.pid).copied().unwrap_or_default()
    }
}

/// Wrong on purpose: checks for space, and then charges.
pub(super) fn check_then_add(process: &Process, slot: usize, bytes: u64) -> bool {
    let fits = total(process) + bytes <= process.limit();
    if fits {
        SharedWord::add(&process.used[slot], bytes);
    }
    fits
}

/// Wrong on purpose: charges before other processes know that the slot exists.
pub(super) fn claim_slot_unannounced(process: &Process, bytes: u64) -> bool {
    let slot = (0..process.slots()).find(|slot| process.try_lock(*slot)).unwrap();
    SharedWord::add(&process.used[slot], bytes);
    let fits = total(process) + bytes <= process.limit();
    process.high.raise(slot as u64 + 1);
    fits
}

/// Wrong on purpose: checks whether a slot has an owner, and then clears it without the lock.
pub(super) fn reap_without_lock(process: &Process, own: usize) {
    for slot in (0..process.slots()).filter(|slot| *slot != own) {
        if process.share.owners[slot].load(SeqCst) == 0 {
            process.used[slot].store(0);
        }
    }
}
