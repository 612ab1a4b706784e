//! What is remembered of a claim, and its text form.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::node::{ClaimRef, PreparedDevice};

/// Version of the form. A reader refuses what is newer than itself.
const VERSION: u64 = 1;

/// What is remembered of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Record {
    /// The claim.
    #[serde(with = "ClaimForm")]
    pub(crate) claim: ClaimRef,
    /// The boot in which it was prepared: no container outlives it.
    pub(crate) boot_id: String,
    /// How much is known.
    pub(crate) state: RecordState,
    /// What it holds, in the allocation's order.
    pub(crate) devices: Vec<HeldDevice>,
}

/// How much is known of what a claim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RecordState {
    /// It was given the devices; its CDI spec follows from this record and is written after it.
    Prepared,
    /// Its record was damaged, and it may hold the devices; no devices means that it may hold any.
    Unresolved,
}

/// A device that a claim holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
struct ClaimForm {
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
            share_id: None,
        }
    }
}

impl Damage {
    /// One word for a file name.
    pub(crate) fn word(self) -> &'static str {
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
    let envelope = Envelope { version: VERSION, sha256: checksum(record), record };
    // Strings and lists alone: nothing in it can fail to become JSON.
    serde_json::to_string(&envelope).unwrap_or_default()
}

/// Reads the record of a claim.
pub(crate) fn decode(text: &[u8], uid: &str) -> Result<Record, Damage> {
    let value: Value = serde_json::from_slice(text).map_err(|_| Damage::Truncated)?;
    match value.get("version").and_then(Value::as_u64) {
        Some(VERSION) => {}
        Some(version) if version > VERSION => return Err(Damage::FutureVersion),
        _ => return Err(Damage::Changed),
    }
    let record = value.get("record").cloned().ok_or(Damage::Changed)?;
    let record: Record = serde_json::from_value(record).map_err(|_| Damage::Changed)?;
    let is_whole = value.get("sha256").and_then(Value::as_str) == Some(&checksum(&record))
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
