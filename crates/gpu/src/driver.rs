//! The seam between Octavo and a driver library.

use std::time::Duration;

use crate::{DriverVersions, Gpu, GpuHealth, UnreadableGpu};

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
}

/// Events of a driver, in the order in which it tells them.
pub trait EventStream: Send {
    /// Waits for the next event; `None` when `timeout` passed without one.
    ///
    /// An error does not end the stream. Some come back at once on every wait, as
    /// [`DriverError::GpuLost`] does while a GPU is off the bus: wait a while before the next call.
    fn wait(&mut self, timeout: Duration) -> Result<Option<GpuEvent>, DriverError>;

    /// UUIDs of GPUs whose events the driver would not register: nothing is heard of them.
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
