//! The record of a claim on GPUs.

use octavo_api::config::{DeviceNodesConfig, OverflowPolicy, ShareClass, Strictness, SwapUnit};
use octavo_enforcement::backend::BackendKind;
use octavo_gpu::mig::MigPlacement;
use octavo_node::ClaimRef;
use serde::{Deserialize, Serialize};

use super::format::{Checkpointed, ClaimRecord};
use crate::cdi::cdi_id;
use crate::node::PreparedDevice;

/// Newest version of the format. Readers reject newer versions.
const VERSION: u64 = 7;
/// The version before limits of memory above the request, quanta and exempt namespaces.
const SIXTH_VERSION: u64 = 6;
/// The version before limits of time.
const FIFTH_VERSION: u64 = 5;
/// The version before time slices and MPS.
const FOURTH_VERSION: u64 = 4;
/// The version before device nodes of classes.
const THIRD_VERSION: u64 = 3;
/// The version before memory enforcement.
const SECOND_VERSION: u64 = 2;
/// The version before shares and MIG. Records without those are still written in it, so that an older agent can take
/// over the node.
const FIRST_VERSION: u64 = 1;

/// Persistent state of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Record {
    /// The claim.
    #[serde(with = "ClaimRecord")]
    pub(crate) claim: ClaimRef,
    /// The boot in which the claim was prepared. No container outlives it.
    pub(crate) boot_id: String,
    /// How much is known.
    pub(crate) state: RecordState,
    /// Time of the prepare, in seconds since 1970. Present only if it is reported in the claim's status: a repeated
    /// report is then identical, and the API server writes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prepared_at: Option<i64>,
    /// Held devices, in the allocation's order.
    pub(crate) devices: Vec<HeldDevice>,
}

/// Certainty about the devices of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RecordState {
    /// The claim holds the devices. Its CDI spec is derived from this record and written after it. While an instance is
    /// missing or being recreated there is no spec, but containers may run with the other devices.
    Prepared,
    /// The driver is being asked to create some of the devices. The record is written before that, so an instance may
    /// or may not exist. No container uses it yet, so an agent that finds this state releases the claim. This state
    /// never replaces the record of a claim whose containers may run.
    Preparing,
    /// The record was damaged, and the claim may hold these devices; an empty list means any device. While such a claim
    /// is prepared again it keeps this state, with the devices of its allocation.
    Unresolved,
}

/// A device that a claim holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HeldDevice {
    /// Requests served by the device, without subrequests, as the kubelet expects them.
    pub(crate) requests: Vec<String>,
    /// Pool.
    pub(crate) pool: String,
    /// Name in the pool.
    pub(crate) device: String,
    /// UUID of the GPU; empty if unknown.
    pub(crate) uuid: String,
    /// Whether the device was allocated with admin access, besides the claim that holds it.
    pub(crate) admin_access: bool,
    /// CDI names for the runtime.
    pub(crate) cdi_ids: Vec<String>,
    /// Share id of the allocation, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) share_id: Option<String>,
    /// How much of the GPU it is.
    #[serde(default, skip_serializing_if = "HeldKind::is_whole")]
    pub(crate) kind: HeldKind,
    /// Enforcement of a share. A share without this field was prepared before memory enforcement existed: nothing
    /// limits it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) terms: Option<HeldTerms>,
    /// Device nodes that the class of the request adds.
    #[serde(default, skip_serializing_if = "DeviceNodesConfig::is_empty")]
    pub(crate) extra_nodes: DeviceNodesConfig,
    /// How the claim's containers share the device, if its config says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sharing: Option<HeldSharing>,
}

/// How the containers of a claim share a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum HeldSharing {
    /// In turns of another length than the driver's default, by the number that `nvidia-smi compute-policy` has for it: 1 short, 2
    /// medium, 3 long.
    TimeSlice(u8),
    /// Concurrently, under an MPS daemon.
    Mps(HeldMps),
}

/// The MPS daemon of a device. Devices with the same daemon have the same values but for the memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HeldMps {
    /// Name of the daemon's folder.
    pub(crate) daemon: String,
    /// Most of the GPU's threads for each client, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) active_thread_percentage: Option<u8>,
    /// Most memory of the device for each client, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_limit_mib: Option<u64>,
    /// Whether clients of several users use one server.
    #[serde(default)]
    pub(crate) multi_user: bool,
}

/// Enforcement of a share: decided when the share is prepared, and fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HeldTerms {
    /// The enforcement backend.
    ///
    /// The field keeps its first name on disk. The checksum covers the text, and an older agent that takes over the
    /// node knows no other name.
    #[serde(rename = "wall")]
    pub(crate) backend: BackendKind,
    /// Action on containers that exceed the share.
    pub(crate) overflow: OverflowPolicy,
    /// Action on driver functions unknown to the guard.
    pub(crate) strictness: Strictness,
    /// Scheduling class on the GPU.
    pub(crate) class: ShareClass,
    /// Compute time that the share never exceeds, in thousandths of a percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) compute_limit: Option<u32>,
    /// Memory that the share may have while others leave it, in bytes. Absent: its own memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_limit: Option<u64>,
    /// What of the share is moved to the host when others need its memory.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) swap_unit: SwapUnit,
    /// Shortest turn on the GPU while other shares wait for it, in milliseconds. Absent: that of its class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) quantum_ms: Option<u32>,
    /// Whether nothing holds the share because its namespace was exempt.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_exempt: bool,
    /// Identifies this version of the share's files.
    pub(crate) generation: u64,
}

/// How much of its GPU a claim holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum HeldKind {
    /// All of it.
    #[default]
    Whole,
    /// A part of its memory and time.
    Share(HeldShare),
    /// A MIG instance.
    Mig(HeldMig),
}

/// A part of a GPU's memory and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HeldShare {
    /// Memory in bytes; 0: no limit.
    pub(crate) memory_bytes: u64,
    /// Guaranteed compute time in thousandths of a percent; 0 means no guarantee.
    pub(crate) compute_milli_percent: u32,
}

impl HeldShare {
    /// Whether nothing limits its memory.
    pub(crate) fn is_unlimited(self) -> bool {
        self.memory_bytes == 0
    }
}

/// A MIG instance, made or to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HeldMig {
    /// Name of the profile.
    pub(crate) profile: String,
    /// The driver's id of the profile.
    pub(crate) profile_id: u32,
    /// First memory slice.
    pub(crate) start: u32,
    /// Number of memory slices.
    pub(crate) size: u32,
    /// Whether the instance is created for the claim and destroyed with it.
    pub(crate) is_dynamic: bool,
    /// The instance, once it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) made: Option<MadeMig>,
}

/// An existing MIG instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MadeMig {
    /// Id of the GPU instance on its GPU.
    pub(crate) gpu_instance: u32,
    /// Id of the compute instance in it.
    pub(crate) compute_instance: u32,
    /// `MIG-...`.
    pub(crate) uuid: String,
}

impl HeldDevice {
    /// Its memory slices; `None`: those of all of the GPU.
    pub(crate) fn placement(&self) -> Option<MigPlacement> {
        match &self.kind {
            HeldKind::Mig(mig) => Some(mig.placement()),
            HeldKind::Whole | HeldKind::Share(_) => None,
        }
    }

    /// Memory that a share may have while others leave it, in bytes, if that is more than its own.
    pub(crate) fn memory_limit(&self) -> Option<u64> {
        self.terms?.memory_limit
    }

    /// The device as reported to the kubelet.
    pub(crate) fn prepared(&self) -> PreparedDevice {
        PreparedDevice {
            requests: self.requests.clone(),
            pool: self.pool.clone(),
            device: self.device.clone(),
            cdi_ids: self.cdi_ids.clone(),
            share_id: self.share_id.clone(),
        }
    }
}

impl HeldKind {
    /// Whether it is all of the GPU.
    pub(crate) fn is_whole(&self) -> bool {
        *self == Self::Whole
    }
}

impl HeldMig {
    /// Where it is or will be.
    pub(crate) fn placement(&self) -> MigPlacement {
        MigPlacement { start: self.start, size: self.size }
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// For fields that are left out. Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !*value
}

impl Checkpointed for Record {
    const NEWEST_VERSION: u64 = VERSION;

    fn version(&self) -> u64 {
        let is_plain = |device: &HeldDevice| device.kind.is_whole() && device.share_id.is_none();
        let is_first = self.state != RecordState::Preparing
            && self.prepared_at.is_none()
            && self.devices.iter().all(is_plain);
        let is_unlimited = |device: &HeldDevice| matches!(device.kind, HeldKind::Share(share) if share.is_unlimited());
        let mut terms = self.devices.iter().filter_map(|device| device.terms);
        let is_new = |terms: HeldTerms| {
            terms.memory_limit.is_some() || terms.quantum_ms.is_some() || terms.is_exempt
        };
        if terms.clone().any(is_new) {
            return VERSION;
        }
        if terms.any(|terms| terms.compute_limit.is_some()) {
            return SIXTH_VERSION;
        }
        // An earlier agent would read no memory as a limit.
        if self.has_sharing() || self.devices.iter().any(is_unlimited) {
            return FIFTH_VERSION;
        }
        if self.devices.iter().any(|device| !device.extra_nodes.is_empty()) {
            return FOURTH_VERSION;
        }
        match self.devices.iter().any(|device| device.terms.is_some()) {
            true => THIRD_VERSION,
            false if is_first => FIRST_VERSION,
            false => SECOND_VERSION,
        }
    }

    fn claim(&self) -> &ClaimRef {
        &self.claim
    }

    fn boot_id(&self) -> &str {
        &self.boot_id
    }
}

impl Record {
    /// Whether the claim's status describes any of its devices.
    pub(crate) fn has_facts(&self) -> bool {
        self.devices.iter().any(|device| !device.kind.is_whole())
    }

    /// Whether the record was damaged, so that its devices are a guess.
    pub(crate) fn is_unresolved(&self) -> bool {
        self.state == RecordState::Unresolved
    }

    /// The MIG instances created for the claim, with their devices.
    pub(crate) fn dynamic_mig(&self) -> impl Iterator<Item = (&HeldDevice, &HeldMig)> {
        self.devices.iter().filter_map(|device| match &device.kind {
            HeldKind::Mig(mig) if mig.is_dynamic => Some((device, mig)),
            _ => None,
        })
    }

    /// Whether the claim's containers share any device by time slices or MPS.
    pub(crate) fn has_sharing(&self) -> bool {
        self.devices.iter().any(|device| device.sharing.is_some())
    }

    /// Whether containers have CDI names that another driver gave, so that its spec must stay.
    pub(crate) fn has_foreign_names(&self) -> bool {
        let own = |device: &HeldDevice| {
            let share = match device.kind {
                HeldKind::Share(_) => device.share_id.as_deref(),
                HeldKind::Whole | HeldKind::Mig(_) => None,
            };
            cdi_id(&self.claim.uid, &device.device, share)
        };
        self.devices.iter().any(|device| device.cdi_ids != [own(device)])
    }

    /// Gives its devices this driver's CDI names.
    pub(crate) fn rename(&mut self) {
        let uid = self.claim.uid.clone();
        for device in &mut self.devices {
            device.cdi_ids = vec![cdi_id(&uid, &device.device, None)];
        }
    }

    /// Whether any device is a MIG instance, dynamic or not.
    pub(crate) fn has_mig(&self) -> bool {
        self.devices.iter().any(|device| matches!(device.kind, HeldKind::Mig(_)))
    }

    /// Whether any of its MIG instances is missing or not created yet.
    pub(crate) fn lacks_instance(&self) -> bool {
        let lacks = |device: &HeldDevice| match &device.kind {
            HeldKind::Mig(mig) => mig.made.is_none(),
            HeldKind::Whole | HeldKind::Share(_) => false,
        };
        self.devices.iter().any(lacks)
    }

    /// Sets the instance of a device; `None` if it is missing or not created yet.
    pub(crate) fn set_made(&mut self, device: &str, made: Option<&MadeMig>) {
        for held in self.devices.iter_mut().filter(|held| held.device == device) {
            if let HeldKind::Mig(mig) = &mut held.kind {
                mig.made = made.cloned();
            }
        }
    }

    /// The shares, with their devices.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (&HeldDevice, HeldShare)> {
        self.devices.iter().filter_map(|device| match device.kind {
            HeldKind::Share(share) => Some((device, share)),
            _ => None,
        })
    }
}
