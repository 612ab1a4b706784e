//! The devices of a node as claims see them.

use std::collections::BTreeSet;

use octavo_gpu::mig::{MigInstance, MigPlacement, MigProfile};

/// A device that claims can be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDevice {
    /// Name in the node's pool.
    pub name: String,
    /// `GPU-...` of the GPU that it is or is a part of.
    pub uuid: String,
    /// Number of the GPU's device node `/dev/nvidiaN`.
    pub minor: u32,
    /// The GPU's PCI address in sysfs's form.
    pub pci: String,
    /// What it is of the GPU.
    pub kind: DeviceKind,
}

/// What may be done to the MIG mode and the instances of a node's GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigManagement {
    /// UUIDs of the GPUs that Octavo cuts; `None` while that is not known. On others it destroys nothing that it
    /// did not make.
    pub gpus: Option<BTreeSet<String>>,
    /// UUIDs of the GPUs whose MIG mode changes with a reset only: it stays as it is, for a reset needs a person.
    pub fixed: BTreeSet<String>,
}

/// What a device is of its GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// All of it, or any number of shares.
    Gpu {
        /// What shares may add up to, in bytes: a claim that has it all has the GPU.
        memory_bytes: u64,
    },
    /// A place for an instance that is made when a claim is prepared, and destroyed after it.
    MigPlacement {
        /// What is made.
        profile: MigProfile,
        /// Where.
        placement: MigPlacement,
    },
    /// An instance that somebody made and that stays, on a GPU that Octavo does not cut.
    MigInstance {
        /// Its profile.
        profile: MigProfile,
        /// The instance.
        instance: MigInstance,
    },
}
