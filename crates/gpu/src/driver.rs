//! The seam between Octavo and a driver library.

use std::path::Path;
use std::time::Duration;

use crate::mig::{MigInstance, MigPlacement, MigProfile};
use crate::{DriverVersions, Gpu, GpuHealth, GpuProcess, Mig, UnreadableGpu};

/// An open driver library.
///
/// Calls block, some for as long as the hardware pleases: call them from a thread that may wait.
pub trait Driver: Send + Sync {
    /// Versions of the driver, CUDA and the management library.
    fn versions(&self) -> Result<DriverVersions, DriverError>;

    /// Every GPU that the driver counts, in index order. A GPU that cannot be read does not hide
    /// the others: it comes back as the error.
    fn gpus(&self) -> Result<Vec<Result<Gpu, UnreadableGpu>>, DriverError>;

    /// Health of one GPU now, by UUID.
    fn health(&self, uuid: &str) -> Result<GpuHealth, DriverError>;

    /// Starts to listen for events of all GPUs.
    fn events(&self) -> Result<Box<dyn EventStream>, DriverError>;

    /// The processes that have memory on a GPU, by UUID, in order of pid: those that compute, those that draw
    /// and those that compute through MPS.
    fn processes(&self, uuid: &str) -> Result<Vec<GpuProcess>, DriverError> {
        let _ = uuid;
        Err(DriverError::NotSupported { call: "nvmlDeviceGetComputeRunningProcesses_v3" })
    }

    /// What a GPU can be cut into, by UUID, in order of NVML's profile numbers; empty where it has
    /// no MIG mode. Answers whether the mode is on or off, and changes nothing.
    fn mig_profiles(&self, uuid: &str) -> Result<Vec<MigProfile>, DriverError> {
        let _ = uuid;
        Ok(Vec::new())
    }

    /// The GPU instances that a GPU has now, in order of their placement; empty with the mode off.
    fn mig_instances(&self, uuid: &str) -> Result<Vec<MigInstance>, DriverError> {
        let _ = uuid;
        Ok(Vec::new())
    }

    /// Turns a GPU's MIG mode on or off and tells what it is then: where the GPU needs a reset
    /// first, as A100 does, only `pending` has changed. A GPU in use, or one that still has
    /// instances, is refused as [`DriverError::InUse`], and `pending` is what it was before.
    fn set_mig_mode(&self, uuid: &str, enabled: bool) -> Result<Mig, DriverError> {
        let _ = (uuid, enabled);
        Err(DriverError::NotSupported { call: "nvmlDeviceSetMigMode" })
    }

    /// Makes a GPU instance at a placement of the profile, and the compute instance that fills it.
    /// Where the second step fails the first is taken back, and where that fails the error is
    /// [`DriverError::HalfDone`]. A placement that another instance has in part, or that the
    /// profile has not, is refused as [`DriverError::NoRoom`].
    ///
    /// Ids and UUIDs say the place on drivers of today: what is made where another instance was
    /// has that one's.
    fn create_mig(
        &self,
        uuid: &str,
        profile: &MigProfile,
        placement: MigPlacement,
    ) -> Result<MigInstance, DriverError> {
        let _ = (uuid, profile, placement);
        Err(DriverError::NotSupported { call: "nvmlDeviceCreateGpuInstanceWithPlacement" })
    }

    /// Destroys a GPU instance with its compute instances. One that processes use is refused as
    /// [`DriverError::InUse`] and stays whole; one that is not there as [`DriverError::NotFound`].
    /// Where one of its compute instances is gone when the next, or itself, is refused, the error
    /// is [`DriverError::HalfDone`].
    fn destroy_mig(&self, uuid: &str, gpu_instance: u32) -> Result<(), DriverError> {
        let _ = (uuid, gpu_instance);
        Err(DriverError::NotSupported { call: "nvmlGpuInstanceDestroy" })
    }

    /// Whether the driver holds cgroups to amounts of memory, as from r615 on.
    fn has_memory_limits(&self) -> bool {
        false
    }

    /// Limits the memory that the processes of a cgroup, named by its folder, have on a GPU. The
    /// folder must be a cgroup's own and of version 2; a limit lasts as long as the cgroup.
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

/// How much memory the processes of a cgroup may have on a GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryLimits {
    /// What is kept for them. All cgroups above keep it, too, and go on doing so when the cgroup
    /// goes before it was set to 0.
    pub soft_bytes: u64,
    /// More than this is refused.
    pub hard_bytes: u64,
}

/// Events of a driver, in the order in which it tells them.
pub trait EventStream: Send {
    /// Waits for the next event; `None` when `timeout` passed without one.
    ///
    /// An error does not end the stream. Some come back at once on every wait, as
    /// [`DriverError::GpuLost`] does while a GPU is off the bus: wait a while before the next call.
    fn wait(&mut self, timeout: Duration) -> Result<Option<GpuEvent>, DriverError>;

    /// UUIDs of GPUs whose events the driver would not register: nothing is contact of them.
    fn unmonitored(&self) -> &[String] {
        &[]
    }
}

/// Something that a driver told of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuEvent {
    /// UUID of the GPU; `None` if the driver named one that it cannot identify any more.
    pub uuid: Option<String>,
    /// What happened.
    pub kind: GpuEventKind,
    /// GPU instance concerned; `None`: the whole GPU.
    pub gpu_instance: Option<u32>,
    /// Compute instance concerned; `None`: the whole GPU instance.
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

/// Why the driver did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The library could not be loaded.
    #[error("cannot load the driver library {path}: {reason}")]
    Load {
        /// Path or name that was tried.
        path: String,
        /// The loader's words.
        reason: String,
    },
    /// The library has no such function: the driver is too old.
    #[error("the driver has no {call}: it needs a newer version")]
    Missing {
        /// Name of the function.
        call: &'static str,
    },
    /// The hardware or driver does not serve the call.
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
    /// There is no room for what was to be made.
    #[error("{call}: there is no room for it on the GPU")]
    NoRoom {
        /// Name of the function.
        call: &'static str,
    },
    /// Refused when a part was done, which could not be taken back.
    #[error("{error}; GPU instance {} {left}", id(*gpu_instance))]
    HalfDone {
        /// The refusal.
        error: Box<DriverError>,
        /// Id of the GPU instance that is not what it should be; `None` where the driver would not
        /// tell: compare what there is with what there was.
        gpu_instance: Option<u32>,
        /// What is left of it, as a predicate.
        left: String,
    },
    /// Any other refusal.
    #[error("{call}: {message} (code {code})")]
    Failed {
        /// Name of the function.
        call: &'static str,
        /// NVML return code.
        code: u32,
        /// The driver's words for it.
        message: String,
    },
}

impl DriverError {
    /// The refusal itself, without what was done before it.
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
