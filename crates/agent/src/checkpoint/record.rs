//! What is remembered of a claim, and its text form.

use octavo_api::config::{OverflowPolicy, ShareClass, Strictness};
use octavo_gpu::mig::MigPlacement;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::enforcement::BackendKind;
use crate::node::{ClaimRef, PreparedDevice};

/// Newest version of the form. A reader refuses what is newer than itself.
const VERSION: u64 = 3;
/// The version before the wall.
const SECOND_VERSION: u64 = 2;
/// The version before shares and MIG. What it can say is still written in it, so that an agent of before
/// can take the node's claims over.
const FIRST_VERSION: u64 = 1;

/// What is remembered of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Record {
    /// The claim.
    #[serde(with = "ClaimRecord")]
    pub(crate) claim: ClaimRef,
    /// The boot in which it was prepared: no container outlives it.
    pub(crate) boot_id: String,
    /// How much is known.
    pub(crate) state: RecordState,
    /// When it was prepared, in seconds since 1970; only where people are told of it: a report that is
    /// repeated then says the same, and the API server writes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prepared_at: Option<i64>,
    /// What it holds, in the allocation's order.
    pub(crate) devices: Vec<HeldDevice>,
}

/// How much is known of what a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RecordState {
    /// It was given the devices; its CDI spec follows from this record and is written after it. Where an
    /// instance is gone, or is being made anew, there is no spec, but its containers may run with the rest.
    Prepared,
    /// It is to be given the devices, and the driver is being asked to make some of them; they are written
    /// down here before it is. An instance may be there or not; a container has none of it, so that whoever
    /// finds this takes it back. Never written over a record of a claim whose containers may run.
    Preparing,
    /// Its record was damaged, and it may hold the devices; no devices means that it may hold any. While
    /// such a claim is prepared anew it stays this, with the devices that its allocation names.
    Unresolved,
}

/// A device that a claim holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HeldDevice {
    /// Requests that it serves, without subrequests: what the kubelet goes by.
    pub(crate) requests: Vec<String>,
    /// Pool.
    pub(crate) pool: String,
    /// Name in the pool.
    pub(crate) device: String,
    /// UUID of the GPU; empty where it could not be made out.
    pub(crate) uuid: String,
    /// Whether it was given for administration, beside the claim that holds it.
    pub(crate) admin_access: bool,
    /// CDI names for the runtime.
    pub(crate) cdi_ids: Vec<String>,
    /// The allocation's share of the device, where it has a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) share_id: Option<String>,
    /// How much of the GPU it is.
    #[serde(default, skip_serializing_if = "HeldKind::is_whole")]
    pub(crate) kind: HeldKind,
    /// How a share is held. A share without was prepared by a version before the wall: nothing holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) terms: Option<HeldTerms>,
}

/// How a share is held: what was decided when it was prepared, and stays as long as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct HeldTerms {
    /// What holds it.
    ///
    /// The field keeps its first name on disk: the record's checksum is of its text, and an agent of before,
    /// which may take the node back, knows no other name.
    #[serde(rename = "wall")]
    pub(crate) backend: BackendKind,
    /// What becomes of containers that have too much.
    pub(crate) overflow: OverflowPolicy,
    /// What becomes of calls that the guard does not know.
    pub(crate) strictness: Strictness,
    /// Who goes first on the GPU.
    pub(crate) class: ShareClass,
    /// Tells this writing of the share's files from others.
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
    /// Memory in bytes.
    pub(crate) memory_bytes: u64,
    /// Guaranteed time in thousandths of a percent; 0 guarantees none.
    pub(crate) compute_milli_percent: u32,
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
    /// Whether it is made for the claim and destroyed after it.
    pub(crate) is_dynamic: bool,
    /// The instance, once it is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) made: Option<MadeMig>,
}

/// A MIG instance that is there.
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

/// What can be wrong with a record's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damage {
    /// The file cannot be read.
    #[error("it cannot be read")]
    Unreadable,
    /// The text ends early or is no JSON.
    #[error("it is cut short or is not JSON")]
    Truncated,
    /// The content does not match its checksum, its form or its name.
    #[error("its content was changed")]
    Changed,
    /// It was written by a newer version.
    #[error("it was written by a newer version of Octavo")]
    FutureVersion,
}

/// The text form: a version and a checksum around the record.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    version: u64,
    sha256: String,
    record: &'a Record,
}

/// The text form of [`ClaimRef`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "ClaimRef", deny_unknown_fields)]
struct ClaimRecord {
    namespace: String,
    name: String,
    uid: String,
}

impl HeldDevice {
    /// What the kubelet is told.
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

impl Record {
    /// The oldest version of the form that can say it.
    fn version(&self) -> u64 {
        let is_plain = |device: &HeldDevice| device.kind.is_whole() && device.share_id.is_none();
        let is_first = self.state != RecordState::Preparing
            && self.prepared_at.is_none()
            && self.devices.iter().all(is_plain);
        match self.devices.iter().any(|device| device.terms.is_some()) {
            true => VERSION,
            false if is_first => FIRST_VERSION,
            false => SECOND_VERSION,
        }
    }

    /// Whether people are told what the claim got.
    pub(crate) fn has_facts(&self) -> bool {
        self.devices.iter().any(|device| !device.kind.is_whole())
    }

    /// Whether it was damaged and it is only a guess what the claim holds.
    pub(crate) fn is_unresolved(&self) -> bool {
        self.state == RecordState::Unresolved
    }

    /// The MIG instances that are made for the claim, with their devices.
    pub(crate) fn dynamic_mig(&self) -> impl Iterator<Item = (&HeldDevice, &HeldMig)> {
        self.devices.iter().filter_map(|device| match &device.kind {
            HeldKind::Mig(mig) if mig.is_dynamic => Some((device, mig)),
            _ => None,
        })
    }

    /// Whether any device is a MIG instance, made for the claim or not.
    pub(crate) fn has_mig(&self) -> bool {
        self.devices.iter().any(|device| matches!(device.kind, HeldKind::Mig(_)))
    }

    /// Whether any of its MIG instances is gone or was not made yet.
    pub(crate) fn lacks_instance(&self) -> bool {
        let lacks = |device: &HeldDevice| match &device.kind {
            HeldKind::Mig(mig) => mig.made.is_none(),
            HeldKind::Whole | HeldKind::Share(_) => false,
        };
        self.devices.iter().any(lacks)
    }

    /// Writes down which instance a device has; without one it is gone or was not made yet.
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

impl Damage {
    /// One word for a file name.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Truncated => "truncated",
            Self::Changed => "changed",
            Self::FutureVersion => "future-version",
        }
    }
}

/// The text of a record: one line of JSON.
pub(crate) fn encode(record: &Record) -> String {
    let envelope = Envelope { version: record.version(), sha256: checksum(record), record };
    // Strings and lists alone: nothing in it can fail to become JSON.
    serde_json::to_string(&envelope).unwrap_or_default()
}

/// Reads the record of a claim.
pub(crate) fn decode(text: &[u8], uid: &str) -> Result<Record, Damage> {
    let value: Value = serde_json::from_slice(text).map_err(|_| Damage::Truncated)?;
    let version = match value.get("version").and_then(Value::as_u64) {
        Some(version @ FIRST_VERSION..=VERSION) => version,
        Some(version) if version > VERSION => return Err(Damage::FutureVersion),
        _ => return Err(Damage::Changed),
    };
    let record = value.get("record").cloned().ok_or(Damage::Changed)?;
    let record: Record = serde_json::from_value(record).map_err(|_| Damage::Changed)?;
    let is_whole = value.get("sha256").and_then(Value::as_str) == Some(&checksum(&record))
        && record.version() == version
        && record.claim.uid == uid;
    if is_whole { Ok(record) } else { Err(Damage::Changed) }
}

/// The claim that damaged text names, as far as it can be made out.
pub(super) fn claim_in(text: &[u8], uid: &str) -> Option<ClaimRef> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let claim = value.get("record")?.get("claim")?;
    let part = |name| claim.get(name)?.as_str().map(str::to_owned);
    let claim = ClaimRef { namespace: part("namespace")?, name: part("name")?, uid: part("uid")? };
    (claim.uid == uid).then_some(claim)
}

/// Hash of a record's text, in hexadecimal.
fn checksum(record: &Record) -> String {
    use std::fmt::Write;
    let text = serde_json::to_vec(record).unwrap_or_default();
    Sha256::digest(&text).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
