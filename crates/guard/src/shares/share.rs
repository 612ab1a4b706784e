//! One share: its files, and this process's slot.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use octavo_guard_abi::ledger::{self, SlotTable};
use octavo_guard_abi::limits::{self, Limits};
use octavo_guard_abi::state::{self, SLOTS, Slot, State};
use octavo_guard_abi::{LIMITS_FILE, SOCKET_FILE, STATE_FILE};

use super::ClosedReason;
use crate::cuda::Status;
use crate::gate;
use crate::leases::ShareLeases;
use crate::paths::Path;
use crate::platform::sync::Mutex;
use crate::platform::sys::file::{File, Identity, Mode};
use crate::platform::sys::{futex, task};

mod locks;
mod mapping;
mod process_identity;

use locks::{HeldLocks, Locks};
pub(crate) use mapping::Mapped;

/// A share in which this process has a slot.
#[derive(Debug)]
pub(crate) struct Share {
    /// Path of the agent's socket.
    pub(crate) socket: Path,
    state_path: Path,
    /// Generation of the share.
    pub(crate) generation: u64,
    /// UUID of the GPU.
    pub(crate) gpu: [u8; 16],
    /// The agent's limits.
    pub(crate) limits: &'static Limits,
    state: &'static State,
    /// Identity of the state file.
    identity: Identity,
    /// Keeps the lock of the slot.
    _held_lock: HeldLocks,
    /// Index of the slot.
    slot: usize,
    /// One thread of a process at a time may clear slots of dead processes, because locks belong to
    /// open files and not to threads.
    reaper: Mutex<()>,
    /// This process's own count of its charges.
    used: AtomicU64,
    /// Whether the state file was found tampered with.
    tampered: AtomicBool,
    /// Charge for a context, from the last readable limits.
    context_bytes: AtomicU64,
    /// When slots of dead processes were last cleared for a query.
    last_reap_ms: AtomicU64,
    /// Whether this process may launch now.
    pub(crate) leases: ShareLeases,
    /// Whether large plain memory is allocated so that the guard can move it ([`limits::PAGES`]).
    pub(crate) moves_pages: bool,
    /// Bytes of this process that the guard can move: on the GPU, and on the host.
    pub(crate) movable_bytes: AtomicU64,
    pub(crate) moved_bytes: AtomicU64,
}

/// The files of a share, before a slot is claimed.
struct Files {
    limits: &'static Limits,
    state: &'static State,
}

impl Files {
    /// Unmaps the files. No other reference may be left.
    fn close(self) {
        drop(Mapped { start: NonNull::from(self.limits), bytes: limits::SIZE });
        drop(Mapped { start: NonNull::from(self.state), bytes: state::SIZE });
    }
}

impl SlotTable for Files {
    type Word = AtomicU64;

    fn slots(&self) -> usize {
        SLOTS
    }

    fn high(&self) -> &AtomicU64 {
        &self.state.high
    }

    fn used(&self, slot: usize) -> &AtomicU64 {
        &self.state.slots[slot].used_bytes
    }

    fn limit(&self) -> u64 {
        let withheld = self.limits.live().withheld_bytes.load(Ordering::SeqCst);
        self.limits.memory_bytes().saturating_sub(withheld)
    }

    fn untracked(&self) -> u64 {
        self.limits.live().untracked_bytes.load(Ordering::Relaxed)
    }
}

/// Damage of a state file, as encoded in a frame.
pub(super) fn damage_code(damage: state::Damage) -> u64 {
    match damage {
        state::Damage::Size => 0,
        state::Damage::Magic => 1,
        state::Damage::Version(_) => 2,
        state::Damage::Generation(_) => 3,
    }
}

/// How long slots of dead processes may count in a query, in milliseconds. Clearing them asks the
/// kernel about every slot. An allocation that does not fit clears them at once.
const REAP_INTERVAL_MS: u64 = 100;

/// Requests for memory that others have before an allocation is refused.
const MAX_ASKS: u32 = 3;

impl Share {
    /// Opens the share of a folder and claims a slot. `index` is its place in the list of shares.
    pub(super) fn open(name: &[u8], index: usize) -> Result<Self, ClosedReason> {
        let path = |file| Path::of(name, file).ok_or(ClosedReason::TooMany);
        let (socket, state_path, limits_path) =
            (path(SOCKET_FILE)?, path(STATE_FILE)?, path(LIMITS_FILE)?);
        let system = |error| ClosedReason::System(socket, error);

        let damaged = |damage| ClosedReason::Limits(socket, damage);
        let file = File::open(limits_path.text(), Mode::Read)
            .map_err(|_| damaged(limits::Damage::Size))?;
        if file.identity().map_err(system)?.0 != limits::SIZE as u64 {
            return Err(damaged(limits::Damage::Size));
        }
        // Through a writable mount a tenant could set its own limits.
        if cfg!(not(feature = "test-paths")) && !file.is_read_only_mount().map_err(system)? {
            return Err(ClosedReason::Writable(socket));
        }
        let limits = Mapped::<Limits>::of(&file, limits::SIZE, false).map_err(system)?;
        let terms = limits.get().terms().map_err(damaged)?;

        let file = File::open(state_path.text(), Mode::Write).map_err(system)?;
        let (size, identity) = file.identity().map_err(system)?;
        if size != state::SIZE as u64 {
            return Err(ClosedReason::State(socket, state::Damage::Size));
        }
        let state = Mapped::<State>::of(&file, state::SIZE, true).map_err(system)?;
        state
            .get()
            .check(terms.generation)
            .map_err(|damage| ClosedReason::State(socket, damage))?;

        // Locks use another open file than the mapping: children of a fork inherit the mapping and
        // keep its file open.
        let Some(locks) = Locks::of(&state_path, identity).map_err(system)? else {
            return Err(ClosedReason::State(socket, state::Damage::Magic));
        };
        let files = Files { limits: limits.leak(), state: state.leak() };
        let claimed =
            ledger::claim_slot(&files, &locks).and_then(|slot| Some((slot, locks.into_held()?)));
        let Some((slot, held_lock)) = claimed else {
            files.close();
            return Err(ClosedReason::Full(socket));
        };
        let Files { limits, state } = files;
        let share = Self {
            socket,
            state_path,
            generation: terms.generation,
            gpu: terms.gpu,
            limits,
            state,
            identity,
            _held_lock: held_lock,
            slot,
            reaper: Mutex::new(()),
            used: AtomicU64::new(0),
            tampered: AtomicBool::new(false),
            context_bytes: AtomicU64::new(terms.context_bytes),
            last_reap_ms: AtomicU64::new(0),
            leases: ShareLeases::new(index),
            moves_pages: terms.flags & limits::PAGES != 0,
            movable_bytes: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
        };
        share.write_identity();
        Ok(share)
    }

    /// Closes a share when the process stays closed.
    pub(super) fn close(self) {
        // While the slot is still ours.
        self.slot().pid.store(0, Ordering::Release);
        let files = self.files();
        drop(self);
        files.close();
    }

    /// Writes the identity of the process to its slot.
    fn write_identity(&self) {
        let slot = self.slot();
        for word in [
            &slot.context_bytes,
            &slot.peak_bytes,
            &slot.refused,
            &slot.unknown,
            &slot.launches,
            &slot.in_flight,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        slot.epoch
            .store(u64::from(self.limits.live().epoch.load(Ordering::Acquire)), Ordering::Relaxed);
        slot.start_time.store(process_identity::start_time(), Ordering::Relaxed);
        slot.pid_namespace.store(process_identity::pid_namespace(), Ordering::Relaxed);
        // Last: a slot with a pid is complete.
        slot.pid.store(u64::from(task::process()), Ordering::Release);
    }

    fn index(&self) -> usize {
        self.slot % SLOTS
    }

    /// Index of the slot, for frames.
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.index()).unwrap_or(u32::MAX)
    }

    /// This process's slot.
    pub(crate) fn slot(&self) -> &'static Slot {
        &self.state.slots[self.index()]
    }

    /// All slots that were ever claimed.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &'static Slot> + use<> {
        let high = usize::try_from(self.state.high.load(Ordering::Acquire)).unwrap_or(SLOTS);
        self.state.slots.iter().take(high.min(SLOTS))
    }

    /// Clears slots of dead processes. A process that can no longer open the file leaves that to
    /// others.
    pub(crate) fn reap(&self) {
        let _reaper = self.reaper.lock();
        if let Ok(Some(locks)) = Locks::of(&self.state_path, self.identity) {
            ledger::reap(&self.files(), &locks, self.index());
        }
    }

    fn files(&self) -> Files {
        Files { limits: self.limits, state: self.state }
    }

    /// Limit in bytes.
    pub(crate) fn limit(&self) -> u64 {
        self.limits.memory_bytes()
    }

    /// How much of the time the GPU works for it, in thousandths; `None` if unknown.
    pub(crate) fn utilisation_permille(&self) -> Option<u32> {
        self.limits.live().utilisation_permille()
    }

    /// Charge for a context in bytes. If the limits cannot be read, the last known value applies.
    pub(crate) fn context_bytes(&self) -> u64 {
        match self.limits.terms() {
            Ok(terms) => {
                self.context_bytes.store(terms.context_bytes, Ordering::Relaxed);
                terms.context_bytes
            }
            Err(_) => self.context_bytes.load(Ordering::Relaxed),
        }
    }

    /// Bytes used by all its processes. Slots of dead processes count for a moment.
    pub(crate) fn total(&self) -> u64 {
        let now = task::coarse_milliseconds();
        if now.wrapping_sub(self.last_reap_ms.load(Ordering::Relaxed)) >= REAP_INTERVAL_MS {
            self.last_reap_ms.store(now, Ordering::Relaxed);
            self.reap();
        }
        ledger::total(&self.files())
    }

    /// Damage of the state file, found now or before.
    pub(crate) fn damage(&self) -> Option<state::Damage> {
        match self.state.check(self.generation) {
            Ok(()) if self.tampered.load(Ordering::Relaxed) => Some(state::Damage::Magic),
            Ok(()) => None,
            Err(damage) => {
                self.tampered.store(true, Ordering::Relaxed);
                Some(damage)
            }
        }
    }

    /// The damage as encoded in a frame.
    pub(crate) fn damage_code(&self) -> Option<u64> {
        self.damage().map(damage_code)
    }

    /// Charges bytes before they are allocated; waits while the share is paused. Memory of the share that others have now is asked
    /// for.
    #[inline(never)]
    pub(crate) fn charge(&self, bytes: u64) -> Result<(), Status> {
        gate::pass(self)?;
        if self.damage().is_some() {
            return Err(Status::NOT_PERMITTED);
        }
        if self.try_charge(bytes).is_err() {
            if self.withheld_bytes() == 0 || self.total().saturating_add(bytes) > self.limit() {
                return Err(Status::OUT_OF_MEMORY);
            }
            self.borrow(bytes)?;
        }
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.slot().peak_bytes.load(Ordering::Relaxed) {
            self.slot().peak_bytes.store(used, Ordering::Relaxed);
        }
        Ok(())
    }

    fn try_charge(&self, bytes: u64) -> Result<(), Status> {
        ledger::try_charge(&self.files(), self.index(), bytes, |attempts| self.wait(attempts))
            .map_err(|_| Status::OUT_OF_MEMORY)
    }

    /// Asks the agent for memory of the share that others have now. What it gives may be taken by another process of the share, or the
    /// agent may be replaced by its successor meanwhile; so this asks a few times.
    #[cold]
    fn borrow(&self, bytes: u64) -> Result<(), Status> {
        for _ in 0..MAX_ASKS {
            let before = self.withheld_bytes();
            self.leases.ask_for_memory(bytes);
            let charged = self.try_charge(bytes);
            if charged.is_ok() || self.withheld_bytes() == before {
                return charged;
            }
        }
        Err(Status::OUT_OF_MEMORY)
    }

    /// Bytes of the limit that other shares have now.
    fn withheld_bytes(&self) -> u64 {
        self.limits.live().withheld_bytes.load(Ordering::Relaxed)
    }

    /// Between two attempts: clears slots of dead processes, then lets another process go first.
    fn wait(&self, attempts: u32) {
        self.reap();
        if attempts > 1 {
            // Processes that compete for the last bytes wait for different times. A refused charge
            // of another process lasts shorter than this, unless its thread is preempted.
            futex::sleep_microseconds(50 + u64::from(self.number() % 5) * 40);
        }
    }

    /// Charges bytes that are allocated already.
    pub(crate) fn charge_unchecked(&self, bytes: u64) {
        ledger::charge_unchecked(&self.files(), self.index(), bytes);
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Releases bytes.
    pub(crate) fn release(&self, bytes: u64) {
        ledger::release(&self.files(), self.index(), bytes);
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}
