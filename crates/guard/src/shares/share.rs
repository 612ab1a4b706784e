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
use crate::paths::Path;
use crate::platform::sync::Mutex;
use crate::platform::sys::file::{File, Identity, Mode};
use crate::platform::sys::{futex, task};

mod locks;
mod mapping;
mod process_identity;

use locks::{HeldLocks, Locks};
use mapping::Mapped;

/// A share that this process has a slot of.
#[derive(Debug)]
pub(crate) struct Share {
    /// Path of the agent's socket.
    pub(crate) socket: Path,
    state_path: Path,
    /// Which writing of the share this is.
    pub(crate) generation: u64,
    /// The GPU.
    pub(crate) gpu: [u8; 16],
    /// What the agent says.
    pub(crate) limits: &'static Limits,
    state: &'static State,
    /// Which file the state is.
    identity: Identity,
    /// The lock that holds the slot.
    _held_lock: HeldLocks,
    /// The slot's number.
    slot: usize,
    /// Whoever empties the slots of the dead: one thread of a process at a time, because locks know open files
    /// and not threads.
    reaper: Mutex<()>,
    /// What this process is counted for, as it knows itself.
    used: AtomicU64,
    /// The state file is not what it was.
    tampered: AtomicBool,
    /// What a context is counted for, as the limits said when they could last be read.
    context_bytes: AtomicU64,
    /// When the slots of the dead were last emptied for somebody process_identity only looks.
    last_reap_ms: AtomicU64,
}

/// The files of a share, before there is a slot.
struct Files {
    limits: &'static Limits,
    state: &'static State,
}

impl Files {
    /// Gives the mappings back. Nothing else may refer to them any more.
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
        self.limits.memory_bytes()
    }

    fn untracked(&self) -> u64 {
        self.limits.live().untracked_bytes.load(Ordering::Relaxed)
    }
}

/// What is wrong with a state file, as a frame says it.
pub(super) fn damage_code(damage: state::Damage) -> u64 {
    match damage {
        state::Damage::Size => 0,
        state::Damage::Magic => 1,
        state::Damage::Version(_) => 2,
        state::Damage::Generation(_) => 3,
    }
}

/// How long the slots of the dead may count for somebody process_identity only looks, in milliseconds. Looking for the dead
/// asks the kernel about every slot; whoever does not fit looks at once.
const REAP_INTERVAL_MS: u64 = 100;

impl Share {
    /// Opens the share of a folder and takes a slot.
    pub(super) fn open(name: &[u8]) -> Result<Self, ClosedReason> {
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
        // Through a mount for writing a tenant could set its own limits.
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

        // Locks are another open file's than the mapping, which a child of a fork inherits and nobody takes away.
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
        };
        share.write_identity();
        Ok(share)
    }

    /// Leaves a share that was opened in vain: its process is in none of the container's.
    pub(super) fn close(self) {
        // While the slot is still held: afterwards it is another's.
        self.slot().pid.store(0, Ordering::Release);
        let files = self.files();
        drop(self);
        files.close();
    }

    /// Writes process_identity has the slot.
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
        // Last: a slot with a pid is whole.
        slot.pid.store(u64::from(task::process()), Ordering::Release);
    }

    fn index(&self) -> usize {
        self.slot % SLOTS
    }

    /// The slot's number, for frames.
    pub(crate) fn number(&self) -> u32 {
        u32::try_from(self.index()).unwrap_or(u32::MAX)
    }

    /// This process's slot.
    pub(crate) fn slot(&self) -> &'static Slot {
        &self.state.slots[self.index()]
    }

    /// The slots that were ever taken, whoever's.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &'static Slot> + use<> {
        let high = usize::try_from(self.state.high.load(Ordering::Acquire)).unwrap_or(SLOTS);
        self.state.slots.iter().take(high.min(SLOTS))
    }

    /// Empties the slots of the dead. A process that cannot open the file any more leaves that to others.
    pub(crate) fn reap(&self) {
        let _reaper = self.reaper.lock();
        if let Ok(Some(locks)) = Locks::of(&self.state_path, self.identity) {
            ledger::reap(&self.files(), &locks, self.index());
        }
    }

    fn files(&self) -> Files {
        Files { limits: self.limits, state: self.state }
    }

    /// Bytes that the share may have.
    pub(crate) fn limit(&self) -> u64 {
        self.limits.memory_bytes()
    }

    /// Bytes that a context is counted for. While the limits cannot be read it is what they said before.
    pub(crate) fn context_bytes(&self) -> u64 {
        match self.limits.terms() {
            Ok(terms) => {
                self.context_bytes.store(terms.context_bytes, Ordering::Relaxed);
                terms.context_bytes
            }
            Err(_) => self.context_bytes.load(Ordering::Relaxed),
        }
    }

    /// Bytes that all its processes have; those that are no more have none after a moment.
    pub(crate) fn total(&self) -> u64 {
        let now = task::coarse_milliseconds();
        if now.wrapping_sub(self.last_reap_ms.load(Ordering::Relaxed)) >= REAP_INTERVAL_MS {
            self.last_reap_ms.store(now, Ordering::Relaxed);
            self.reap();
        }
        ledger::total(&self.files())
    }

    /// Whether the state file is not what it was, as seen before or now.
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

    /// What a frame says of the damage.
    pub(crate) fn damage_code(&self) -> Option<u64> {
        self.damage().map(damage_code)
    }

    /// Counts bytes before they are allocated; waits while the share is held.
    #[inline(never)]
    pub(crate) fn charge(&self, bytes: u64) -> Result<(), Status> {
        gate::pass(self)?;
        if self.damage().is_some() {
            return Err(Status::NOT_PERMITTED);
        }
        let charged =
            ledger::try_charge(&self.files(), self.index(), bytes, |attempts| self.wait(attempts));
        if charged.is_err() {
            return Err(Status::OUT_OF_MEMORY);
        }
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if used > self.slot().peak_bytes.load(Ordering::Relaxed) {
            self.slot().peak_bytes.store(used, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Between two tries: empties the slots of the dead, then lets another process go first.
    fn wait(&self, attempts: u32) {
        self.reap();
        if attempts > 1 {
            // Slots that fight for the last bytes wait for different times. A wish that is taken back is
            // there for less than this, unless its thread was put off the processor.
            futex::sleep_microseconds(50 + u64::from(self.number() % 5) * 40);
        }
    }

    /// Counts bytes that are taken already.
    pub(crate) fn charge_unchecked(&self, bytes: u64) {
        ledger::charge_unchecked(&self.files(), self.index(), bytes);
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Gives bytes back.
    pub(crate) fn release(&self, bytes: u64) {
        ledger::release(&self.files(), self.index(), bytes);
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}
