//! The checkpoint of NVIDIA's DRA driver for GPUs: what it has given to which claims of a node.
//!
//! ```text
//! bytes --json_text--> parts as written --checksum--> verified --decode, device, sharing--> claims by UID
//! ```
//!
//! The form is that of `cmd/gpu-kubelet-plugin` (`checkpoint.go`, `checkpointv.go`, `prepared.go`) of the releases 25.3 to 0.5.
//! A file has the part `v1`, or `v1` and `v2`; the driver then reads `v2`. The file is not trusted: what contradicts its checksum
//! or its form is an error, and nothing of it is used.

mod checksum;
mod decode;
mod device;
mod json_text;
mod sharing;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use decode::read_checkpoint;
pub use device::{DeviceKind, MigDevice, MigPlacement};
pub use sharing::{AppliedSharing, RequestedSharing};

/// What NVIDIA's DRA driver has given to claims of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The part that was read.
    pub version: CheckpointVersion,
    /// `/proc/sys/kernel/random/boot_id` of the node when the driver started last. After another boot its claims are not
    /// prepared any more. `None` if the release did not record it (before 0.4).
    pub boot_id: Option<String>,
    /// Claims by UID.
    pub claims: BTreeMap<String, PreparedClaim>,
}

/// A part of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CheckpointVersion {
    /// `v1`: claims that are prepared.
    V1,
    /// `v2`: also claims whose preparation had begun, names of claims, and the boot.
    V2,
}

/// A claim of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedClaim {
    /// Its name, if the release recorded it (25.12 and later).
    pub name: Option<String>,
    /// Its namespace, if the release recorded it.
    pub namespace: Option<String>,
    /// How far its preparation came.
    pub state: ClaimState,
    /// What the scheduler had allocated of this driver, as the claim's status said.
    pub allocated: Vec<AllocatedDevice>,
    /// The devices that were prepared, together with those of the same config. Empty while the preparation has only begun.
    pub groups: Vec<PreparedGroup>,
}

/// How far the preparation of a claim came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimState {
    /// It began. Some of its devices may have been changed, such as MIG devices that were created.
    PrepareStarted,
    /// Its containers may run.
    PrepareCompleted,
}

/// A device that a claim has by its allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatedDevice {
    /// The request, `request` or `request/subrequest`.
    pub request: String,
    /// The pool.
    pub pool: String,
    /// The device's name in its slice.
    pub device: String,
    /// Whether the claim has it beside another claim, for observation.
    pub is_admin: bool,
    /// Which share of the device it is.
    pub share_id: Option<String>,
}

/// Devices that were prepared with one config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedGroup {
    /// The devices.
    pub devices: Vec<PreparedDevice>,
    /// How their containers share them.
    pub sharing: AppliedSharing,
}

/// A device that was prepared for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedDevice {
    /// The requests that it serves.
    pub requests: Vec<String>,
    /// The pool.
    pub pool: String,
    /// Its name in its slice, such as `gpu-0`.
    pub name: String,
    /// The CDI names that the container runtime got.
    pub cdi_device_ids: Vec<String>,
    /// Which share of the device it is.
    pub share_id: Option<String>,
    /// What it is.
    pub kind: DeviceKind,
}

/// A checkpoint that cannot be used. Nothing of it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    /// The file has no text.
    #[error(
        "the checkpoint of NVIDIA's DRA driver is empty, as after a full disk or a power failure; {REMEDY}"
    )]
    Empty,
    /// The text is no JSON.
    #[error(
        "the checkpoint of NVIDIA's DRA driver is no JSON ({0}): it was cut off or changed; {REMEDY}"
    )]
    NotJson(String),
    /// A part contradicts its checksum.
    #[error(
        "the part {part} of the checkpoint of NVIDIA's DRA driver has the checksum {expected}, and its text gives {found}: it was \
         changed after the driver wrote it; {REMEDY}"
    )]
    Checksum {
        /// The part: `v1` or `v2`.
        part: &'static str,
        /// The checksum in the file.
        expected: u64,
        /// That of its text.
        found: u64,
    },
    /// The file has a part of a later release.
    #[error(
        "the checkpoint of NVIDIA's DRA driver has the part {0:?}, and this program knows v1 and v2: a later release wrote it; use \
         a later Octavo, or drain the node and end NVIDIA's driver before its checkpoint is left behind"
    )]
    UnknownVersion(String),
    /// The file has neither `v1` nor `v2`.
    #[error(
        "the checkpoint of NVIDIA's DRA driver has neither v1 nor v2, as no release writes it; {REMEDY}"
    )]
    NoVersion,
    /// A field does not have the form of the driver's types, although the checksum is right.
    #[error("the field {path} of the checkpoint of NVIDIA's DRA driver {problem}; {REMEDY}")]
    Field {
        /// JSON path from the file's root.
        path: String,
        /// What is wrong.
        problem: String,
    },
}

/// What to do about a file that cannot be read.
const REMEDY: &str = "drain the node so that no claim needs it, then let NVIDIA's driver unprepare, or remove the file";

impl PreparedClaim {
    /// The devices of all groups.
    pub fn devices(&self) -> impl Iterator<Item = &PreparedDevice> {
        self.groups.iter().flat_map(|group| &group.devices)
    }
}

impl Checkpoint {
    /// Whether its claims were prepared in another boot, so that none of them is any more. `None` if the file does not say.
    pub fn is_of_other_boot(&self, boot_id: &str) -> Option<bool> {
        self.boot_id.as_deref().map(|recorded| recorded != boot_id)
    }
}
