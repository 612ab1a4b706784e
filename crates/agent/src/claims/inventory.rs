//! The devices of a node as claims see them.

use crate::config::GpuShares;
use octavo_gpu::mig::{MigInstance, MigPlacement, MigProfile};

/// A device that can be prepared for claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDevice {
    /// Name in the node's pool.
    pub name: String,
    /// `GPU-...` of its GPU.
    pub uuid: String,
    /// Number of the GPU's device node `/dev/nvidiaN`.
    pub minor: u32,
    /// The GPU's PCI address in sysfs's form.
    pub pci: String,
    /// The part of the GPU.
    pub kind: DeviceKind,
}

/// The part of a GPU that a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// All of it, or any number of shares.
    Gpu {
        /// Its memory as NVML counts it, in bytes. A claim that takes all of it has the whole GPU.
        memory_bytes: u64,
        /// The part of it that driver and firmware reserve, in bytes.
        reserved_bytes: u64,
        /// How claims share it.
        shares: GpuShares,
    },
    /// A placement for an instance that is created by prepare and destroyed by unprepare.
    MigPlacement {
        /// Profile of the instance.
        profile: MigProfile,
        /// Where.
        placement: MigPlacement,
    },
    /// An existing instance on a GPU that is not under dynamic MIG.
    MigInstance {
        /// Its profile.
        profile: MigProfile,
        /// The instance.
        instance: MigInstance,
    },
}
