mod faults;
mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use faults::{ClocksEventReason, NicState, NvLinkState, PcieState, ResetState};
pub use modules::KernelModule;

use crate::{Machine, MachineError, Mig, MigActivation, MigRefusal, MigState};

/// State of a simulated machine.
///
/// Stored as `state.json` beside the machine description. Writers replace the file by rename, so
/// readers see either the old or the new state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct State {
    /// State of each GPU by NVML index; a missing GPU is healthy.
    pub gpus: BTreeMap<u32, GpuState>,
    /// State of each network card by name; a missing card is well.
    pub nics: BTreeMap<String, NicState>,
    /// Return codes by function name, for calls that fail on every GPU. Functions are NVML's
    /// (`nvmlDeviceGetUUID: 999`) and CUDA's (`cuMemAlloc: 2`). A name without a version applies to
    /// all versions.
    pub failing_calls: BTreeMap<String, u32>,
    /// CUDA functions unknown to `cuGetProcAddress`, as with an older driver. A name without a
    /// version applies to all versions.
    pub missing_functions: BTreeSet<String>,
    /// Functions known to `cuGetProcAddress` beyond CUDA's, as with a newer driver. Each allocates
    /// memory like `cuMemAlloc_v2`.
    pub extra_functions: BTreeSet<String>,
    /// Whether `cuGetProcAddress` returns the same pointers as `dlsym`; default: true.
    pub pointer_identity: Option<bool>,
    /// Duration of a change of MIG mode, in milliseconds.
    pub mig_mode_millis: u64,
    /// Duration of creating a GPU instance, in milliseconds.
    pub mig_create_millis: u64,
    /// Duration of destroying a GPU instance, in milliseconds.
    pub mig_destroy_millis: u64,
    /// Faults of the node's IMEX service.
    pub imex: ImexState,
    /// Faults and durations of checkpoints of processes.
    pub checkpoints: CheckpointState,
    /// Events for `nvmlEventSetWait`, oldest first. Append only: an event set delivers the events
    /// appended after its creation.
    pub events: Vec<Event>,
    /// Time between two looks of `nvmlEventSetWait` at this file, in milliseconds; default: 250. A real driver reports at once.
    pub event_look_millis: Option<u64>,
    /// The driver's kernel modules that are not loaded.
    pub unloaded_modules: BTreeSet<KernelModule>,
    /// Major number of the device of the module `nvidia_uvm`; `None`: 508.
    pub uvm_major: Option<u32>,
}

/// Faults of the IMEX service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ImexState {
    /// Version of the service, if it is not the driver's: then it does not start.
    pub version: Option<String>,
    /// Time that a start takes, in milliseconds.
    pub start_millis: u64,
    /// State in which the service stays, as `nvidia-imex-ctl -q` names it.
    pub stuck_in: Option<String>,
    /// Peers that the service cannot reach, and that cannot reach it, by their index.
    pub cut_peers: BTreeSet<u32>,
}

/// Faults and durations of checkpoints of processes (`cuCheckpointProcessLock` and so on). A plain refusal is one of
/// [`State::failing_calls`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CheckpointState {
    /// Whether the work of a process never ends that is to be locked: the lock waits until its timeout.
    pub lock_hangs: bool,
    /// Whether a checkpoint breaks half-way, which leaves the process in the state FAILED.
    pub checkpoint_breaks: bool,
    /// Whether a restore breaks half-way, which leaves the process in the state FAILED.
    pub restore_breaks: bool,
    /// Duration of a checkpoint, in milliseconds.
    pub checkpoint_millis: u64,
    /// Duration of a restore, in milliseconds.
    pub restore_millis: u64,
}

/// State of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GpuState {
    /// Whether every call on the GPU returns `NVML_ERROR_GPU_IS_LOST`.
    pub lost: bool,
    /// Recovery action advised by the driver (`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`).
    pub recovery_action: RecoveryAction,
    /// ECC error counters.
    pub ecc: Ecc,
    /// Whether a row remap failed; then the board must be replaced.
    pub remap_failed: bool,
    /// Whether a row remap waits for a reset.
    pub remap_pending: bool,
    /// Fabric health mask in NVML's packed form; `None`: healthy.
    pub fabric_health: Option<u32>,
    /// Its `NVLink`s.
    pub nvlink: NvLinkState,
    /// Its `PCIe` link.
    pub pcie: PcieState,
    /// Why its clocks are low.
    pub clocks_event_reasons: BTreeSet<ClocksEventReason>,
    /// What its resets do.
    pub reset: ResetState,
    /// Core temperature in degrees Celsius; `None`: the model's idle temperature.
    pub temperature_celsius: Option<u32>,
    /// Power draw in milliwatts; `None`: the model's idle power.
    pub power_milliwatts: Option<u32>,
    /// SM utilisation in percent.
    pub utilisation_percent: u32,
    /// Frame buffer in use, in MiB.
    pub memory_used_mib: u64,
    /// Processes that use the GPU as a whole; while there are any the MIG mode is fixed.
    pub processes: u32,
    /// MIG mode and instances.
    pub mig: MigState,
    /// Changes of the MIG mode so far. Each may unbind the GPU from the driver, and so ends what
    /// processes have registered for its events.
    pub mig_mode_changes: u32,
    /// Minor number that the next change of the MIG mode gives the GPU.
    pub next_minor: Option<u32>,
    /// Minor number since such a change; `None`: that of the description.
    pub minor: Option<u32>,
    /// Compute mode as NVML numbers it: which processes may have contexts; 0 is the default.
    pub compute_mode: u32,
    /// Time slice of its contexts, as `nvidia-smi compute-policy` numbers it: 0 is the default, 1 short, 2 medium, 3 long.
    pub time_slice: u32,
    /// Return codes by function name, for calls that fail on this GPU.
    pub failing_calls: BTreeMap<String, u32>,
    /// Bytes of memory that do not keep what is written: their lowest bit is inverted. Each is a distance in bytes from the beginning of
    /// a process's memory on the GPU.
    pub weak_memory: BTreeSet<u64>,
    /// Numbers of multiprocessors that compute wrong: the lowest bit of each fused multiplication is inverted.
    pub faulty_multiprocessors: BTreeSet<u32>,
    /// Exceptional kernels by name; the duration of other kernels follows from their name.
    pub kernels: BTreeMap<String, KernelState>,
}

/// An exceptional kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KernelState {
    /// Its duration; `None`: derived from its name.
    pub nanos: Option<u64>,
    /// Its fault; `None`: it ends normally.
    pub fault: Option<KernelFault>,
}

/// The fault of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KernelFault {
    /// An access to invalid memory. From then on its context returns `CUDA_ERROR_ILLEGAL_ADDRESS`
    /// for every call.
    IllegalAddress,
    /// It never ends.
    NeverEnds,
}

/// ECC error counters since the driver was loaded (volatile) and over the lifetime (aggregate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Ecc {
    /// Corrected since load.
    pub volatile_corrected: u64,
    /// Uncorrected since load.
    pub volatile_uncorrected: u64,
    /// Corrected over the lifetime.
    pub aggregate_corrected: u64,
    /// Uncorrected over the lifetime.
    pub aggregate_uncorrected: u64,
}

/// Recovery action advised by the driver (`nvmlDeviceGpuRecoveryAction_t`; the discriminants are
/// NVML's).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecoveryAction {
    /// Nothing.
    #[default]
    None = 0,
    /// Reset the GPU.
    GpuReset = 1,
    /// Reboot the node.
    NodeReboot = 2,
    /// Drain peer-to-peer traffic.
    DrainP2p = 3,
    /// Drain, then reset the GPU.
    DrainAndReset = 4,
}

/// An event of `nvmlEventSetWait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Event {
    /// NVML index of the GPU.
    pub gpu: u32,
    /// What happened.
    pub kind: EventKind,
    /// Event data: the XID for [`EventKind::Xid`].
    #[serde(default)]
    pub data: u64,
    /// The GPU instance; `None`: the whole GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// The compute instance; `None`: the whole GPU instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_instance: Option<u32>,
}

/// Kind of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    /// A critical XID (`nvmlEventTypeXidCriticalError`).
    Xid,
    /// A corrected ECC error (`nvmlEventTypeSingleBitEccError`).
    SingleBitEcc,
    /// An uncorrected ECC error (`nvmlEventTypeDoubleBitEccError`).
    DoubleBitEcc,
}

impl State {
    /// Reads the state; a missing file gives the default state.
    pub fn read(path: &Path) -> Result<Self, MachineError> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(MachineError::Io { action: "read", path: path.to_owned(), source }),
        }
    }

    /// Replaces the state file atomically.
    pub fn write(&self, path: &Path) -> Result<(), MachineError> {
        let io = |source| MachineError::Io { action: "write", path: path.to_owned(), source };
        let next = path.with_extension("json.next");
        std::fs::write(&next, serde_json::to_vec_pretty(self)?).map_err(io)?;
        mark_newer(&next, path).map_err(io)?;
        std::fs::rename(&next, path).map_err(io)
    }

    /// Applies a reboot of the machine: what a reset changes, and the MIG mode ([`MigState::reboot`]). A lost GPU is back, and
    /// what the driver advised is done, unless that is in vain. The driver is loaded. Counters of network cards are at zero. Other faults and
    /// the list of events stay.
    pub fn reboot(&mut self, machine: &Machine) {
        self.unloaded_modules.clear();
        self.uvm_major = None;
        for nic in self.nics.values_mut() {
            *nic = NicState { is_down: nic.is_down, ..NicState::default() };
        }
        for gpu in self.gpus.values_mut() {
            gpu.forget_volatile();
            gpu.remap_pending = false;
            gpu.minor = None;
            gpu.pcie.fatal_errors = 0;
            if !gpu.reset.is_in_vain {
                gpu.lost = false;
                gpu.recovery_action = RecoveryAction::None;
            }
            if let Some(mig) = &machine.model.mig {
                gpu.mig.reboot(mig);
            }
        }
    }
}

impl GpuState {
    /// Applies a reset of the GPU, which nothing uses: volatile counters, compute mode and time slice go back, MIG instances end,
    /// the pending MIG mode is active, and what the driver advised a reset for is over, unless it is in vain. Other faults stay.
    pub fn reset(&mut self, model: Option<&Mig>) {
        self.initialise();
        if let Some(mig) = model {
            let before = self.mig.is_enabled(mig);
            self.mig.reset(mig);
            self.mig_mode_changes += u32::from(self.mig.is_enabled(mig) != before);
        }
    }

    /// Begins again, apart from MIG: what the driver advised a reset for is over, unless it is in vain.
    fn initialise(&mut self) {
        self.forget_volatile();
        self.remap_pending = false;
        let asks_for_reset = matches!(
            self.recovery_action,
            RecoveryAction::GpuReset | RecoveryAction::DrainAndReset
        );
        if asks_for_reset && !self.reset.is_in_vain {
            self.recovery_action = RecoveryAction::None;
        }
    }

    fn forget_volatile(&mut self) {
        self.ecc.volatile_corrected = 0;
        self.ecc.volatile_uncorrected = 0;
        self.nvlink = NvLinkState {
            inactive: std::mem::take(&mut self.nvlink.inactive),
            ..NvLinkState::default()
        };
        self.pcie.replays = 0;
        self.processes = 0;
        self.compute_mode = 0;
        self.time_slice = 0;
    }

    /// Requests a MIG mode, as [`MigState::set_mode`] does. `is_used`: processes that the state does
    /// not name use the GPU, too.
    pub fn set_mig_mode(
        &mut self,
        model: &Mig,
        enabled: bool,
        is_used: bool,
    ) -> Result<MigActivation, MigRefusal> {
        let before = self.mig.is_enabled(model);
        let became = self.mig.set_mode(model, enabled, is_used || self.processes > 0)?;
        if self.mig.is_enabled(model) != before {
            self.mig_mode_changes += 1;
            self.minor = self.next_minor.take().or(self.minor);
        }
        Ok(became)
    }
}

/// Gives a new file a later modification time than the file it will replace. Kernels stamp files at
/// intervals of milliseconds. A reader that compares only inode, size and time could otherwise miss
/// the version after next.
fn mark_newer(next: &Path, path: &Path) -> std::io::Result<()> {
    const STEP: Duration = Duration::from_nanos(1);
    let Ok(before) = std::fs::metadata(path).and_then(|file| file.modified()) else {
        return Ok(());
    };
    let file = File::options().write(true).open(next)?;
    let now = file.metadata()?.modified()?;
    if now <= before { file.set_modified(before + STEP) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
