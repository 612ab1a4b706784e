//! The devices of a node as claims see them.

use std::collections::BTreeSet;

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

/// Allowed changes of MIG mode and instances on a node's GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigManagement {
    /// UUIDs of the GPUs under dynamic MIG; `None` until known. On other GPUs only instances created by Octavo are
    /// destroyed.
    pub gpus: Option<BTreeSet<String>>,
    /// UUIDs of the GPUs whose MIG mode changes only with a reset. A reset needs an administrator, so the mode stays.
    pub fixed: BTreeSet<String>,
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
