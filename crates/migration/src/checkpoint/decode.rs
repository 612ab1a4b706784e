//! From bytes to claims: verify first, then decode.

use std::collections::BTreeMap;

use octavo_api::config::{ConfigEntry, ConfigSource};
use octavo_api::names::DRIVER;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::checksum::checksum;
use super::device::{RawDevice, device};
use super::json_text::{Field, compact, fields};
use super::sharing::{self, RawConfigState};
use super::{
    AllocatedDevice, Checkpoint, CheckpointError, CheckpointVersion, ClaimState, PreparedClaim,
    PreparedGroup,
};

const CHECKSUM: &str = "checksum";
const V1: &str = "v1";
const V2: &str = "v2";

/// The status of a claim, as far as it is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct RawStatus {
    allocation: Option<RawAllocation>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawAllocation {
    devices: RawDevices,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawDevices {
    results: Option<Vec<RawResult>>,
    config: Option<Vec<RawConfig>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawResult {
    request: String,
    driver: String,
    pool: String,
    device: String,
    #[serde(default)]
    admin_access: Option<bool>,
    #[serde(default, rename = "shareID")]
    share_id: Option<String>,
}

#[derive(Deserialize)]
struct RawConfig {
    source: String,
    #[serde(default)]
    requests: Option<Vec<String>>,
    #[serde(default)]
    opaque: Option<RawOpaque>,
}

#[derive(Deserialize)]
struct RawOpaque {
    driver: String,
    parameters: Value,
}

/// `PreparedDeviceGroup` of the driver.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawGroup {
    devices: Option<Vec<RawDevice>>,
    #[serde(default)]
    config_state: RawConfigState,
}

/// A claim of either part.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawClaim {
    #[serde(default)]
    checkpoint_state: Option<String>,
    #[serde(default)]
    status: RawStatus,
    #[serde(default)]
    prepared_devices: Option<Vec<RawGroup>>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    namespace: Option<String>,
}

/// Reads the file `checkpoint.json` of the driver `gpu.nvidia.com`.
///
/// # Errors
///
/// The first reason why the file cannot be used: it is damaged, a later release wrote it, or it does not have the driver's form.
pub fn read_checkpoint(bytes: &[u8]) -> Result<Checkpoint, CheckpointError> {
    if bytes.iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0) {
        return Err(CheckpointError::Empty);
    }
    let not_json = |problem: String| CheckpointError::NotJson(problem);
    let text = std::str::from_utf8(bytes).map_err(|error| not_json(error.to_string()))?;
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map_err(|error| not_json(error.to_string()))?;
    let text = compact(text);
    let root = fields(&text).ok_or_else(|| field("(root)", "is no object"))?;
    let known = [CHECKSUM, V1, V2];
    if let Some(unknown) = root.iter().find(|field| !known.contains(&field.name.as_str())) {
        return Err(CheckpointError::UnknownVersion(unknown.name.clone()));
    }
    let (v1, v2) = (part(&root, V1), part(&root, V2));
    verify_v1(&root, v1)?;
    if let Some(v2) = v2 {
        verify_v2(v2)?;
    }
    match (v2, v1) {
        (Some(text), _) => claims(CheckpointVersion::V2, text),
        (None, Some(text)) => claims(CheckpointVersion::V1, text),
        (None, None) => Err(CheckpointError::NoVersion),
    }
}

/// A field's value as written. Null is as absent; of several the last counts, as in Go.
fn part<'a>(fields: &[Field<'a>], name: &str) -> Option<&'a str> {
    let found = fields.iter().rfind(|field| field.name == name).map(|field| field.value);
    found.filter(|value| *value != "null")
}

fn number(fields: &[Field<'_>], path: &str) -> Result<u64, CheckpointError> {
    let value = part(fields, CHECKSUM).unwrap_or("0");
    value.parse().map_err(|_| field(path, format!("is {value}, no checksum")))
}

/// The checksum at the root covers the file without `v2`, and with 0 in its own place.
fn verify_v1(root: &[Field<'_>], v1: Option<&str>) -> Result<(), CheckpointError> {
    let expected = number(root, CHECKSUM)?;
    let found = match v1 {
        Some(v1) => checksum(&[r#"{"checksum":0,"v1":"#, v1, "}"]),
        None => checksum(&[r#"{"checksum":0}"#]),
    };
    compared(V1, expected, found)
}

/// The checksum of `v2` covers `v2`, with 0 in its own place. It is its first field.
fn verify_v2(v2: &str) -> Result<(), CheckpointError> {
    let fields = fields(v2).ok_or_else(|| field(V2, "is no object"))?;
    let expected = number(&fields, "v2.checksum")?;
    let rest = fields.iter().filter(|field| field.name != CHECKSUM);
    let mut pieces = vec![r#"{"checksum":0"#.to_owned()];
    for field in rest {
        // The names of the driver's fields need no escapes.
        pieces.push(format!(r#","{}":{}"#, field.name, field.value));
    }
    pieces.push("}".to_owned());
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    compared(V2, expected, checksum(&pieces))
}

fn compared(part: &'static str, expected: u64, found: u64) -> Result<(), CheckpointError> {
    if expected == found {
        Ok(())
    } else {
        Err(CheckpointError::Checksum { part, expected, found })
    }
}

fn claims(version: CheckpointVersion, text: &str) -> Result<Checkpoint, CheckpointError> {
    let root = version.name();
    let found = fields(text).ok_or_else(|| field(root, "is no object"))?;
    let boot_id = match part(&found, "nodeBootID") {
        Some(text) => Some(decoded::<String>(text, &format!("{root}.nodeBootID"))?),
        None => None,
    };
    let path = format!("{root}.preparedClaims");
    let by_uid = part(&found, "preparedClaims").unwrap_or("{}");
    let by_uid = fields(by_uid).ok_or_else(|| field(&path, "is no object"))?;
    let mut claims = BTreeMap::new();
    for Field { name: uid, value } in by_uid {
        let path = format!("{path}.{uid}");
        let claim = claim(version, decoded(value, &path)?, &path)?;
        claims.insert(uid, claim);
    }
    Ok(Checkpoint { version, boot_id: boot_id.filter(|id| !id.is_empty()), claims })
}

fn claim(
    version: CheckpointVersion,
    raw: RawClaim,
    path: &str,
) -> Result<PreparedClaim, CheckpointError> {
    let state = match (version, raw.checkpoint_state.as_deref()) {
        // It has no states: what had only begun is not in it.
        (CheckpointVersion::V1, _) | (_, Some("PrepareCompleted")) => ClaimState::PrepareCompleted,
        (_, Some("PrepareStarted")) => ClaimState::PrepareStarted,
        (_, state) => {
            let problem = format!(
                "is {:?}, neither PrepareStarted nor PrepareCompleted",
                state.unwrap_or_default()
            );
            return Err(field(&format!("{path}.checkpointState"), problem));
        }
    };
    let devices = raw.status.allocation.unwrap_or_default().devices;
    let results = devices.results.unwrap_or_default().into_iter();
    let allocated =
        results.filter(|result| result.driver == DRIVER).map(|result| AllocatedDevice {
            request: result.request,
            pool: result.pool,
            device: result.device,
            is_admin: result.admin_access.unwrap_or_default(),
            share_id: result.share_id,
        });
    let allocated: Vec<AllocatedDevice> = allocated.collect();
    let configs = configs(devices.config.unwrap_or_default(), path)?;
    let mut groups = Vec::new();
    for (number, raw) in raw.prepared_devices.unwrap_or_default().into_iter().enumerate() {
        let path = format!("{path}.preparedDevices[{number}]");
        let mut devices = Vec::new();
        for (number, raw) in raw.devices.unwrap_or_default().into_iter().enumerate() {
            devices.push(device(raw, &format!("{path}.devices[{number}]"))?);
        }
        let sharing = sharing::applied(&configs, &devices, raw.config_state);
        groups.push(PreparedGroup { devices, sharing });
    }
    let is_given = |text: &String| !text.is_empty();
    Ok(PreparedClaim {
        name: raw.name.filter(is_given),
        namespace: raw.namespace.filter(is_given),
        state,
        allocated,
        groups,
    })
}

fn configs(raw: Vec<RawConfig>, path: &str) -> Result<Vec<ConfigEntry>, CheckpointError> {
    let mut configs = Vec::new();
    for (number, config) in raw.into_iter().enumerate() {
        let source = match config.source.as_str() {
            "FromClass" => ConfigSource::Class,
            "FromClaim" => ConfigSource::Claim,
            other => {
                let path = format!("{path}.status.allocation.devices.config[{number}].source");
                return Err(field(&path, format!("is {other:?}, neither FromClass nor FromClaim")));
            }
        };
        let Some(RawOpaque { driver, parameters }) = config.opaque else { continue };
        let requests = config.requests.unwrap_or_default();
        configs.push(ConfigEntry { source, requests, driver, parameters });
    }
    Ok(configs)
}

fn decoded<T: DeserializeOwned>(text: &str, path: &str) -> Result<T, CheckpointError> {
    serde_json::from_str(text).map_err(|error| field(path, format!("cannot be read: {error}")))
}

/// An error of a field.
pub(super) fn field(path: &str, problem: impl Into<String>) -> CheckpointError {
    CheckpointError::Field { path: path.to_owned(), problem: problem.into() }
}

impl CheckpointVersion {
    /// Its name in the file.
    fn name(self) -> &'static str {
        match self {
            Self::V1 => V1,
            Self::V2 => V2,
        }
    }
}
