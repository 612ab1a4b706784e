use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Machine, MachineError, MigState};

/// What has happened to a simulated machine since it started.
///
/// Lies as `state.json` beside the machine file. Writers replace the file by rename; readers
/// see either the old state or the new one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct State {
    /// State of a GPU by NVML index; a GPU that is not named is well.
    pub gpus: BTreeMap<u32, GpuState>,
    /// Return codes by function name, for calls that must fail on every GPU: NVML's
    /// (`nvmlDeviceGetUUID: 999`) and CUDA's (`cuMemAlloc: 2`). A name without a version stands
    /// for all versions.
    pub failing_calls: BTreeMap<String, u32>,
    /// CUDA functions that `cuGetProcAddress` does not know, as an older driver does not. A name
    /// without a version stands for all versions.
    pub missing_functions: BTreeSet<String>,
    /// Functions that `cuGetProcAddress` knows besides CUDA's, as a newer driver does. Each
    /// allocates memory as `cuMemAlloc_v2` does.
    pub extra_functions: BTreeSet<String>,
    /// Whether `cuGetProcAddress` gives the pointers that `dlsym` gives; absent: it does.
    pub pointer_identity: Option<bool>,
    /// How long the driver takes to make a GPU instance, in milliseconds.
    pub mig_create_millis: u64,
    /// How long it takes to destroy one.
    pub mig_destroy_millis: u64,
    /// Everything that `nvmlEventSetWait` has to tell, oldest first. Only appended to: an event
    /// set delivers what was appended after it was made.
    pub events: Vec<Event>,
}

/// What has happened to one GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GpuState {
    /// Every call on the GPU answers `NVML_ERROR_GPU_IS_LOST`.
    pub lost: bool,
    /// What the driver advises (`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`).
    pub recovery_action: RecoveryAction,
    /// Memory error counters.
    pub ecc: Ecc,
    /// A row remap failed: the board must be replaced.
    pub remap_failed: bool,
    /// A row remap waits for a reset.
    pub remap_pending: bool,
    /// Fabric health mask as NVML packs it; absent: all well.
    pub fabric_health: Option<u32>,
    /// Core temperature in degrees Celsius; absent: the model's idle temperature.
    pub temperature_celsius: Option<u32>,
    /// Power draw in milliwatts; absent: the model's idle power.
    pub power_milliwatts: Option<u32>,
    /// SM utilisation in percent.
    pub utilisation_percent: u32,
    /// Frame buffer in use, in MiB.
    pub memory_used_mib: u64,
    /// Processes that use the GPU as a whole: while there are any its MIG mode stays.
    pub processes: u32,
    /// MIG mode and instances.
    pub mig: MigState,
    /// Return codes by function name, for calls that must fail on this GPU.
    pub failing_calls: BTreeMap<String, u32>,
    /// What is special about kernels, by name; others take a time that follows from their name.
    pub kernels: BTreeMap<String, KernelState>,
}

/// What is special about a kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct KernelState {
    /// How long it takes; absent: as its name says.
    pub nanos: Option<u64>,
    /// How it ends; absent: well.
    pub fault: Option<KernelFault>,
}

/// How a faulty kernel ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum KernelFault {
    /// With an access to memory that is not there: its context answers
    /// `CUDA_ERROR_ILLEGAL_ADDRESS` to everything from then on.
    IllegalAddress,
    /// Never.
    NeverEnds,
}

/// Memory error counters since the driver was loaded (volatile) and for life (aggregate).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Ecc {
    /// Corrected since load.
    pub volatile_corrected: u64,
    /// Uncorrected since load.
    pub volatile_uncorrected: u64,
    /// Corrected for life.
    pub aggregate_corrected: u64,
    /// Uncorrected for life.
    pub aggregate_uncorrected: u64,
}

/// What the driver advises to do with a GPU (`nvmlDeviceGpuRecoveryAction_t`; the discriminants
/// are NVML's).
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

/// Something that `nvmlEventSetWait` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Event {
    /// NVML index of the GPU.
    pub gpu: u32,
    /// What happened.
    pub kind: EventKind,
    /// Code of the event: the XID's number for [`EventKind::Xid`].
    #[serde(default)]
    pub data: u64,
    /// GPU instance concerned; absent: the whole GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_instance: Option<u32>,
    /// Compute instance concerned; absent: the whole GPU instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compute_instance: Option<u32>,
}

/// Kind of an [`Event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    /// A critical XID (`nvmlEventTypeXidCriticalError`).
    Xid,
    /// A corrected memory error (`nvmlEventTypeSingleBitEccError`).
    SingleBitEcc,
    /// An uncorrected memory error (`nvmlEventTypeDoubleBitEccError`).
    DoubleBitEcc,
}

impl State {
    /// Reads the state; a missing file is the state of a machine to which nothing happened.
    pub fn read(path: &Path) -> Result<Self, MachineError> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(MachineError::Io { action: "read", path: path.to_owned(), source }),
        }
    }

    /// Replaces the state file in one step.
    pub fn write(&self, path: &Path) -> Result<(), MachineError> {
        let io = |source| MachineError::Io { action: "write", path: path.to_owned(), source };
        let next = path.with_extension("json.next");
        std::fs::write(&next, serde_json::to_vec_pretty(self)?).map_err(io)?;
        mark_newer(&next, path).map_err(io)?;
        std::fs::rename(&next, path).map_err(io)
    }

    /// Does what a reboot of the machine does: counters that begin with the driver begin anew,
    /// processes and MIG instances are gone ([`MigState::reboot`]). Faults stay, and so does the
    /// list of events.
    pub fn reboot(&mut self, machine: &Machine) {
        for gpu in self.gpus.values_mut() {
            gpu.ecc.volatile_corrected = 0;
            gpu.ecc.volatile_uncorrected = 0;
            gpu.processes = 0;
            if let Some(mig) = &machine.model.mig {
                gpu.mig.reboot(mig);
            }
        }
    }
}

/// Gives a new file a later time than the one that it is about to replace. Kernels stamp files no
/// finer than every few milliseconds, and a reader that looks at inode, size and time alone would
/// take the version after next for the one that it knows.
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
