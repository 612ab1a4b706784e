//! Effects of the machine's state on calls.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use octavo_machine::{KernelState, State, StateFile};

use crate::code::{CallResult, Code};
use crate::table::lock;

/// The state file, refreshed whenever a call begins.
///
/// Frequent calls refresh it only when the kernel's coarse clock has advanced, every few
/// milliseconds: a refresh takes longer than they do.
pub(crate) struct StateWatcher {
    file: Mutex<StateFile>,
    /// Coarse clock at the last refresh.
    tick: AtomicU64,
    /// Whether any call fails or any GPU is lost.
    has_faults: AtomicBool,
    /// Whether the state has settings for any kernel.
    has_kernels: AtomicBool,
    /// Whether the state names weak memory.
    has_weak_memory: AtomicBool,
}

impl StateWatcher {
    pub(crate) fn new(path: PathBuf) -> Self {
        let watched = Self {
            file: Mutex::new(StateFile::open(path)),
            tick: AtomicU64::new(0),
            has_faults: AtomicBool::new(false),
            has_kernels: AtomicBool::new(false),
            has_weak_memory: AtomicBool::new(false),
        };
        watched.refresh();
        watched
    }

    /// Refreshes from the file.
    pub(crate) fn refresh(&self) {
        let mut file = lock(&self.file);
        let state = file.refresh();
        let gpus = || state.gpus.values();
        let fails = gpus().any(|gpu| gpu.lost || !gpu.failing_calls.is_empty());
        self.has_faults.store(fails || !state.failing_calls.is_empty(), Relaxed);
        self.has_weak_memory.store(gpus().any(|gpu| !gpu.weak_memory.is_empty()), Relaxed);
        self.has_kernels.store(gpus().any(|gpu| !gpu.kernels.is_empty()), Relaxed);
    }

    /// Refreshes from the file if the coarse clock has advanced since.
    pub(crate) fn refresh_if_due(&self) {
        let now = coarse_clock();
        if self.tick.load(Relaxed) != now {
            self.tick.store(now, Relaxed);
            self.refresh();
        }
    }

    /// The last state read.
    pub(crate) fn with<A>(&self, body: impl FnOnce(&State) -> A) -> A {
        body(lock(&self.file).state())
    }

    /// Fails if the state says so for this call, on the GPU of that index or on all.
    pub(crate) fn check_call(&self, call: &str, gpu: Option<u32>) -> CallResult {
        if !self.has_faults.load(Relaxed) {
            return Ok(());
        }
        self.with(|state| {
            let here = gpu.and_then(|gpu| state.gpus.get(&gpu));
            let failing = here.map(|gpu| &gpu.failing_calls);
            for calls in failing.into_iter().chain([&state.failing_calls]) {
                let code = calls.get(call).or_else(|| calls.get(base_of(call)));
                if let Some(&code) = code.filter(|code| **code != 0) {
                    return Err(Code(code));
                }
            }
            if here.is_some_and(|gpu| gpu.lost) { Err(Code::UNKNOWN) } else { Ok(()) }
        })
    }

    /// Whether the GPU of that index is lost.
    pub(crate) fn is_lost(&self, gpu: u32) -> bool {
        self.refresh();
        self.with(|state| state.gpus.get(&gpu).is_some_and(|gpu| gpu.lost))
    }

    /// Settings of a kernel on the GPU of that index.
    pub(crate) fn kernel(&self, gpu: u32, name: &str) -> KernelState {
        if !self.has_kernels.load(Relaxed) {
            return KernelState::default();
        }
        let find = |state: &State| state.gpus.get(&gpu)?.kernels.get(name).copied();
        self.with(|state| find(state).unwrap_or_default())
    }

    /// Whether the state names weak memory.
    pub(crate) fn has_weak_memory(&self) -> bool {
        self.has_weak_memory.load(Relaxed)
    }

    /// Multiprocessors of the GPU of that index that compute wrong.
    pub(crate) fn faulty_multiprocessors(&self, gpu: u32) -> BTreeSet<u32> {
        self.with(|state| state.gpus.get(&gpu).map(|gpu| gpu.faulty_multiprocessors.clone()))
            .unwrap_or_default()
    }

    /// Whether the state has settings for any kernel.
    pub(crate) fn has_kernels(&self) -> bool {
        self.has_kernels.load(Relaxed)
    }
}

/// Name of a function without its suffixes for default stream and version.
pub(crate) fn base_of(call: &str) -> &str {
    let call = call.strip_suffix("_ptsz").or(call.strip_suffix("_ptds")).unwrap_or(call);
    match call.rsplit_once("_v") {
        Some((name, version)) if version.parse::<u32>().is_ok() => name,
        _ => call,
    }
}

fn coarse_clock() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // JUSTIFICATION: the standard library has no clock that costs only a few nanoseconds.
    // SAFETY: the structure is writable, and this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
