//! The interface between Octavo and a driver library.

use std::path::Path;
use std::time::Duration;

use crate::mig::{MigInstance, MigPlacement, MigProfile};
use crate::{DriverVersions, Gpu, GpuHealth, GpuProcess, GpuTelemetry, Mig, UnreadableGpu};

/// An open driver library.
///
/// Calls block, some for as long as the hardware takes: call them from a thread that may block.
pub trait Driver: Send + Sync {
    /// Versions of the driver, CUDA and the management library.
    fn versions(&self) -> Result<DriverVersions, DriverError>;

    /// Every GPU that the driver counts, in index order. A GPU that cannot be read is an error in
    /// the list and does not hide the others.
    fn gpus(&self) -> Result<Vec<Result<Gpu, UnreadableGpu>>, DriverError>;

    /// Current health of the GPU with a UUID.
    fn health(&self, uuid: &str) -> Result<GpuHealth, DriverError>;

    /// What the GPU with a UUID measures and counts. Fails if the GPU is lost.
    fn telemetry(&self, uuid: &str) -> Result<GpuTelemetry, DriverError> {
        let _ = uuid;
        Err(DriverError::NotSupported { call: "nvmlDeviceGetFieldValues" })
    }

    /// Starts a stream of events of all GPUs.
    fn events(&self) -> Result<Box<dyn EventStream>, DriverError>;

    /// The processes that hold memory on a GPU, by PID: compute, graphics and MPS clients.
    fn processes(&self, uuid: &str) -> Result<Vec<GpuProcess>, DriverError> {
        let _ = uuid;
        Err(DriverError::NotSupported { call: "nvmlDeviceGetComputeRunningProcesses_v3" })
    }

    /// The MIG profiles of a GPU, by NVML profile number; empty if it has no MIG mode. They do not
    /// depend on whether the mode is on.
    fn mig_profiles(&self, uuid: &str) -> Result<Vec<MigProfile>, DriverError> {
        let _ = uuid;
        Ok(Vec::new())
    }

    /// The existing GPU instances of a GPU, by placement; empty if the mode is off.
    fn mig_instances(&self, uuid: &str) -> Result<Vec<MigInstance>, DriverError> {
        let _ = uuid;
        Ok(Vec::new())
    }

    /// Whether the MIG mode or the instances of a GPU differ from those in `known`. No event reports
    /// such a change. It makes far fewer calls than [`Self::gpus`]: two for a GPU whose mode is off.
    fn has_mig_changed(&self, known: &Gpu) -> Result<bool, DriverError> {
        let _ = known;
        Ok(false)
    }

    /// Number of the GPU's device node `/dev/nvidiaN`, as the driver has it now. A change of MIG mode may
    /// give the GPU another one (`nvmlDeviceGetMinorNumber` and `nvmlDeviceSetMigMode` in nvml.h).
    fn minor(&self, uuid: &str) -> Result<u32, DriverError> {
        let _ = uuid;
        Err(DriverError::NotSupported { call: "nvmlDeviceGetMinorNumber" })
    }

    /// How many times a GPU's MIG mode was changed through this driver. After a change the GPU may have
    /// another minor number, and an [`EventStream`] from before may tell no more of its events.
    fn mig_mode_changes(&self) -> u64 {
        0
    }

    /// Turns a GPU's MIG mode on or off and returns the resulting mode. If the GPU needs a reset
    /// first, as an A100 does, only `pending` changes. A GPU in use or with instances fails with
    /// [`DriverError::InUse`] and keeps its `pending` mode.
    fn set_mig_mode(&self, uuid: &str, enabled: bool) -> Result<Mig, DriverError> {
        let _ = (uuid, enabled);
        Err(DriverError::NotSupported { call: "nvmlDeviceSetMigMode" })
    }

    /// Which processes may have contexts on a GPU (`nvmlDeviceGetComputeMode`).
    fn compute_mode(&self, uuid: &str) -> Result<ComputeMode, DriverError> {
        let _ = uuid;
        Err(DriverError::NotSupported { call: "nvmlDeviceGetComputeMode" })
    }

    /// Sets which processes may have contexts on a GPU. It needs an administrator, and lasts until the driver is loaded again
    /// (`nvmlDeviceSetComputeMode`).
    fn set_compute_mode(&self, uuid: &str, mode: ComputeMode) -> Result<(), DriverError> {
        let _ = (uuid, mode);
        Err(DriverError::NotSupported { call: "nvmlDeviceSetComputeMode" })
    }

    /// Creates a GPU instance at a placement of the profile, and the compute instance that fills
    /// it.
    ///
    /// If the second step fails, the first is undone. If that fails, too, the error is
    /// [`DriverError::HalfDone`]. A placement that overlaps another instance, or that the profile
    /// does not have, fails with [`DriverError::NoRoom`].
    ///
    /// In today's drivers IDs and UUIDs depend on the placement: a new instance has those of an
    /// earlier one at the same placement.
    fn create_mig(
        &self,
        uuid: &str,
        profile: &MigProfile,
        placement: MigPlacement,
    ) -> Result<MigInstance, DriverError> {
        let _ = (uuid, profile, placement);
        Err(DriverError::NotSupported { call: "nvmlDeviceCreateGpuInstanceWithPlacement" })
    }

    /// Destroys a GPU instance with its compute instances. An instance in use fails with
    /// [`DriverError::InUse`] and stays complete; a missing one fails with
    /// [`DriverError::NotFound`]. If one compute instance is already destroyed when a later step
    /// fails, the error is [`DriverError::HalfDone`].
    fn destroy_mig(&self, uuid: &str, gpu_instance: u32) -> Result<(), DriverError> {
        let _ = (uuid, gpu_instance);
        Err(DriverError::NotSupported { call: "nvmlGpuInstanceDestroy" })
    }

    /// Whether the driver can limit the memory of cgroups, as from r615 on.
    fn has_memory_limits(&self) -> bool {
        false
    }

    /// Limits the memory that the processes of a cgroup (version 2), given by its folder, hold on a
    /// GPU. The limit lasts as long as the cgroup.
    fn set_memory_limits(
        &self,
        uuid: &str,
        cgroup: &Path,
        limits: MemoryLimits,
    ) -> Result<(), DriverError> {
        let _ = (uuid, cgroup, limits);
        Err(DriverError::Missing { call: "nvmlDeviceSetMemoryLimits_v1" })
    }
}

/// Which processes may have contexts on a GPU (`nvmlComputeMode_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComputeMode {
    /// Any.
    Default,
    /// One thread of one process; drivers of today treat it as [`ComputeMode::ExclusiveProcess`].
    ExclusiveThread,
    /// None.
    Prohibited,
    /// One process, such as the server of an MPS daemon.
    ExclusiveProcess,
}

/// Limits of a cgroup's memory on a GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// Memory reserved for its processes. All parent cgroups reserve it, too, and keep the
    /// reservation unless it is set to 0 before the cgroup is deleted.
    pub soft_bytes: u64,
    /// Allocations beyond this fail.
    pub hard_bytes: u64,
}

/// The events of a driver, in its order.
pub trait EventStream: Send {
    /// Waits for the next event; `None` if `timeout` passes without one.
    ///
    /// An error does not end the stream. Some errors return at once from every wait, such as
    /// [`DriverError::GpuLost`] while a GPU is off the bus, so pause before the next call.
    fn wait(&mut self, timeout: Duration) -> Result<Option<GpuEvent>, DriverError>;

    /// UUIDs of GPUs whose events the driver did not register, and for which no events arrive.
    fn unmonitored(&self) -> &[String] {
        &[]
    }
}

/// An event that a driver reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuEvent {
    /// UUID of the GPU; `None` if the driver named one that it can no longer identify.
    pub uuid: Option<String>,
    /// What happened.
    pub kind: GpuEventKind,
    /// GPU instance; `None` for the whole GPU.
    pub gpu_instance: Option<u32>,
    /// Compute instance; `None` for the whole GPU instance.
    pub compute_instance: Option<u32>,
}

/// Kind of a [`GpuEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuEventKind {
    /// A critical XID with its number.
    Xid(u64),
    /// A corrected memory error.
    SingleBitEcc,
    /// An uncorrected memory error.
    DoubleBitEcc,
}

/// Why a driver call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The library could not be loaded.
    #[error("cannot load the driver library {path}: {reason}")]
    Load {
        /// The path or name.
        path: String,
        /// The loader's message.
        reason: String,
    },
    /// The library lacks the function, because the driver is too old.
    #[error("the driver has no {call}: install a newer driver")]
    Missing {
        /// Name of the function.
        call: &'static str,
    },
    /// The hardware or driver does not support the call.
    #[error("{call}: not supported by this GPU or driver")]
    NotSupported {
        /// Name of the function.
        call: &'static str,
    },
    /// The GPU no longer answers.
    #[error("{call}: the GPU is lost")]
    GpuLost {
        /// Name of the function.
        call: &'static str,
    },
    /// No such GPU.
    #[error("{call}: no such GPU")]
    NotFound {
        /// Name of the function.
        call: &'static str,
    },
    /// The GPU is in use.
    #[error("{call}: the GPU is in use")]
    InUse {
        /// Name of the function.
        call: &'static str,
    },
    /// The GPU has no room for the instance.
    #[error("{call}: there is no room for it on the GPU")]
    NoRoom {
        /// Name of the function.
        call: &'static str,
    },
    /// A step failed after an earlier one had succeeded that could not be undone.
    #[error("{error}; GPU instance {} {left}", id(*gpu_instance))]
    HalfDone {
        /// The error of the failed step.
        error: Box<DriverError>,
        /// ID of the incomplete GPU instance; `None` if the driver does not report it and the
        /// caller must compare the instances before and after.
        gpu_instance: Option<u32>,
        /// Its state, as a predicate.
        left: String,
    },
    /// Any other failure.
    #[error("{call}: {message} (code {code})")]
    Failed {
        /// Name of the function.
        call: &'static str,
        /// NVML return code.
        code: u32,
        /// The driver's message.
        message: String,
    },
}

impl DriverError {
    /// Whether the driver cannot reach the GPU that it was asked about, as one that fell off the bus.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::GpuLost { .. } | Self::NotFound { .. })
    }

    /// The error of the failed step, without what was done before it.
    pub fn cause(&self) -> &Self {
        match self {
            Self::HalfDone { error, .. } => error.cause(),
            other => other,
        }
    }
}

fn id(gpu_instance: Option<u32>) -> String {
    gpu_instance.map_or_else(|| "of unknown id".to_owned(), |id| id.to_string())
}
