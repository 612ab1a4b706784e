//! The text of a checkpoint: one line of JSON with version, checksum and record.

use octavo_node::ClaimRef;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A record of a claim that is kept in a checkpoint.
pub(crate) trait Checkpointed: Serialize + DeserializeOwned + Clone {
    /// Newest version of the format. Readers reject newer versions.
    const NEWEST_VERSION: u64;

    /// The oldest version that can express the record. The first is 1.
    fn version(&self) -> u64;

    /// The claim.
    fn claim(&self) -> &ClaimRef;

    /// The boot in which the claim was prepared.
    fn boot_id(&self) -> &str;
}

/// The text form of [`ClaimRef`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "ClaimRef", deny_unknown_fields)]
pub(crate) struct ClaimRecord {
    namespace: String,
    name: String,
    uid: String,
}

/// Damage of a record's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Damage {
    /// The file cannot be read.
    #[error("it cannot be read")]
    Unreadable,
    /// The text ends early or is no JSON.
    #[error("it is cut short or is not JSON")]
    Truncated,
    /// The content contradicts its checksum, its format or its file name.
    #[error("its content was changed")]
    Changed,
    /// It was written by a newer version.
    #[error("it was written by a newer version of Octavo")]
    FutureVersion,
}

/// Version and checksum around a record.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a, R> {
    version: u64,
    sha256: String,
    record: &'a R,
}

impl Damage {
    /// The name of the damage, for file names.
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
pub(crate) fn encode<R: Checkpointed>(record: &R) -> String {
    let envelope = Envelope { version: record.version(), sha256: checksum(record), record };
    // The type holds strings and lists only, so serialization cannot fail.
    serde_json::to_string(&envelope).unwrap_or_default()
}

/// Reads the record of a claim.
pub(crate) fn decode<R: Checkpointed>(text: &[u8], uid: &str) -> Result<R, Damage> {
    let value: Value = serde_json::from_slice(text).map_err(|_| Damage::Truncated)?;
    let version = match value.get("version").and_then(Value::as_u64) {
        Some(version) if version > R::NEWEST_VERSION => return Err(Damage::FutureVersion),
        Some(version) if version > 0 => version,
        _ => return Err(Damage::Changed),
    };
    let record = value.get("record").cloned().ok_or(Damage::Changed)?;
    let record: R = serde_json::from_value(record).map_err(|_| Damage::Changed)?;
    let is_whole = value.get("sha256").and_then(Value::as_str) == Some(&checksum(&record))
        && record.version() == version
        && record.claim().uid == uid;
    if is_whole { Ok(record) } else { Err(Damage::Changed) }
}

/// The claim named in damaged text, if it is readable.
pub(super) fn claim_in(text: &[u8], uid: &str) -> Option<ClaimRef> {
    let value: Value = serde_json::from_slice(text).ok()?;
    let claim = value.get("record")?.get("claim")?;
    let part = |name| claim.get(name)?.as_str().map(str::to_owned);
    let claim = ClaimRef { namespace: part("namespace")?, name: part("name")?, uid: part("uid")? };
    (claim.uid == uid).then_some(claim)
}

/// Hash of a record's text, in hexadecimal.
fn checksum<R: Serialize>(record: &R) -> String {
    use std::fmt::Write;
    let text = serde_json::to_vec(record).unwrap_or_default();
    Sha256::digest(&text).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
