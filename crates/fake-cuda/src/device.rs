//! A visible GPU.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use octavo_fake_gpu::{Clock, FakeGpu, ProcessHandle, RemoteProcess};
use octavo_machine::Gpu;

use crate::code::{CallResult, Code};
use crate::context::Primary;
use crate::execution::graph::GraphMemory;
use crate::library;
use crate::table::{Handle, lock};

/// A visible GPU, with this process's state on it.
pub(crate) struct Device {
    /// Its index among the visible GPUs.
    pub(crate) ordinal: usize,
    /// Its index in the machine.
    pub(crate) index: u32,
    pub(crate) uuid: [u8; 16],
    pub(crate) pci: String,
    /// Memory that processes can have, in bytes.
    pub(crate) capacity: u64,
    pub(crate) primary: Mutex<Primary>,
    /// The default pool and the current one; 0 if not created yet.
    pub(crate) pools: Mutex<(Handle, Handle)>,
    /// Whether memory was freed to a pool since the last synchronisation.
    pub(crate) has_idle_pools: AtomicBool,
    pub(crate) graph_memory: Mutex<GraphMemory>,
    minor: u32,
    folder: PathBuf,
    clock: Clock,
    process: OnceLock<ProcessHandle>,
}

impl Device {
    pub(crate) fn new(
        ordinal: usize,
        index: u32,
        gpu: &Gpu,
        capacity: u64,
        folder: PathBuf,
        clock: Clock,
    ) -> Self {
        Self {
            ordinal,
            index,
            uuid: uuid_bytes(gpu.uuid.as_deref().unwrap_or("")),
            pci: gpu.pci.clone(),
            capacity,
            primary: Mutex::default(),
            pools: Mutex::new((0, 0)),
            has_idle_pools: AtomicBool::new(false),
            graph_memory: Mutex::default(),
            minor: gpu.minor,
            folder,
            clock,
            process: OnceLock::new(),
        }
    }

    /// This process's handle on the GPU, claimed on first use.
    pub(crate) fn process_handle(&self) -> Result<&ProcessHandle, Code> {
        static INIT_LOCK: Mutex<()> = Mutex::new(());
        if let Some(process) = self.process.get() {
            return Ok(process);
        }
        let _turn = lock(&INIT_LOCK);
        if self.process.get().is_none() {
            let gpu = FakeGpu::open(&self.folder, self.minor, self.capacity, self.clock);
            let process = gpu.and_then(FakeGpu::attach).map_err(|_| Code::OPERATING_SYSTEM)?;
            let _ = self.process.set(process);
        }
        self.process.get().ok_or(Code::UNKNOWN)
    }

    /// This process's handle on the GPU, if claimed.
    pub(crate) fn attached(&self) -> Option<&ProcessHandle> {
        self.process.get()
    }

    /// Path of a file for memory shared between processes.
    pub(crate) fn shared_path(&self, number: u64) -> PathBuf {
        self.folder.join("chip").join(format!("{}.{number:016x}", self.minor))
    }

    /// Charges GPU memory.
    pub(crate) fn charge(&self, bytes: u64) -> CallResult {
        if self.process_handle()?.charge(bytes) { Ok(()) } else { Err(Code::OUT_OF_MEMORY) }
    }

    /// Releases GPU memory.
    pub(crate) fn refund(&self, bytes: u64) {
        if let Some(process) = self.attached() {
            process.refund(bytes);
        }
    }

    /// Waits until work is done; fails if the GPU is lost meanwhile.
    pub(crate) fn wait(&self, mark: u64) -> CallResult {
        let driver = library::driver()?;
        let mut is_cancelled = || driver.state.is_lost(self.index);
        if self.process_handle()?.wait(mark, &mut is_cancelled) {
            Ok(())
        } else {
            Err(Code::UNKNOWN)
        }
    }

    /// Waits until the work that a process has submitted by now is done; fails if the GPU is lost meanwhile.
    pub(crate) fn wait_for(&self, owner: RemoteProcess) -> CallResult {
        let (driver, process) = (library::driver()?, self.process_handle()?);
        let Some(mark) = process.submitted_by(owner) else { return Ok(()) };
        let mut is_cancelled = || driver.state.is_lost(self.index);
        if process.wait_for(owner, mark, &mut is_cancelled) { Ok(()) } else { Err(Code::UNKNOWN) }
    }

    /// Records that a pool may have memory to free at the next synchronisation.
    pub(crate) fn note_idle_pool(&self) {
        self.has_idle_pools.store(true, Relaxed);
    }
}

fn uuid_bytes(text: &str) -> [u8; 16] {
    let digits: Vec<u8> = text
        .trim_start_matches("GPU-")
        .chars()
        .filter_map(|digit| digit.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair[0] << 4 | pair[1];
    }
    bytes
}
