//! Devices that several containers share: time slices and MPS.

use serde_json::Value;

use crate::config::ConfigError;
use crate::fields::{Fields, wrong_type};

/// Prefix of all resources.
const PREFIX: &str = "nvidia.com/";
/// Suffix of the resource of shared devices, if it is asked for.
const SHARED_SUFFIX: &str = ".shared";
/// Longest name of a resource.
const MAX_NAME: usize = 63;
/// Fewest replicas of a shared device.
const MIN_REPLICAS: u64 = 2;

/// How devices are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharingStrategy {
    /// Containers use a device in turns.
    TimeSlicing,
    /// Containers use a device concurrently, under a daemon of NVIDIA's Multi-Process Service.
    Mps,
}

/// Devices that several containers share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharingConfig {
    /// How.
    pub strategy: SharingStrategy,
    /// Whether the resources of shared devices have the suffix `.shared`.
    pub rename_by_default: bool,
    /// Whether a request for more than one replica fails.
    pub fail_requests_greater_than_one: bool,
    /// Resources whose devices are shared, in the order of the file. None twice.
    pub resources: Vec<SharedResource>,
}

/// A resource whose devices are shared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedResource {
    /// Its name without sharing, with the prefix `nvidia.com/`.
    pub name: String,
    /// Replicas of each device, at least two.
    pub replicas: u32,
}

impl SharingConfig {
    /// The entry for a resource, by its name without sharing.
    pub fn of(&self, resource: &str) -> Option<&SharedResource> {
        self.resources.iter().find(|shared| shared.name == resource)
    }

    /// The name under which a resource is offered.
    pub fn offered_name(&self, resource: &str) -> String {
        let is_renamed = self.rename_by_default && self.of(resource).is_some();
        if is_renamed { format!("{resource}{SHARED_SUFFIX}") } else { resource.to_owned() }
    }
}

/// The part `sharing` of a file.
pub(super) fn decode(
    fields: &mut Fields<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<SharingConfig>, ConfigError> {
    let Some(mut sharing) = fields.object("sharing")? else { return Ok(None) };
    let slices = sharing.object("timeSlicing")?;
    let mps = sharing.object("mps")?;
    if slices.is_some() && mps.is_some() {
        warnings.push(format!(
            "{} has no effect beside {}",
            sharing.path("timeSlicing"),
            sharing.path("mps")
        ));
    }
    let slices =
        slices.map(|found| resources(found, SharingStrategy::TimeSlicing, warnings)).transpose()?;
    let mps = mps.map(|found| resources(found, SharingStrategy::Mps, warnings)).transpose()?;
    warnings.extend(sharing.unknown());
    Ok(mps.or(slices))
}

fn resources(
    mut fields: Fields<'_>,
    strategy: SharingStrategy,
    warnings: &mut Vec<String>,
) -> Result<SharingConfig, ConfigError> {
    let rename_by_default = fields.bool("renameByDefault")?.unwrap_or_default();
    let fails = fields.bool("failRequestsGreaterThanOne")?;
    let list = match fields.value("resources") {
        Some(Value::Array(list)) if !list.is_empty() => list,
        Some(Value::Array(_)) | None => {
            let problem =
                "needs at least one resource, such as {name: nvidia.com/gpu, replicas: 4}";
            return Err(fields.error("resources", problem.to_owned()));
        }
        Some(other) => return Err(wrong_type(&fields.path("resources"), "a list", other)),
    };
    let mut resources: Vec<SharedResource> = Vec::new();
    for (position, value) in list.iter().enumerate() {
        let path = format!("{}[{position}]", fields.path("resources"));
        let resource = resource(Fields::of(value, &path)?, rename_by_default, warnings)?;
        if resources.iter().any(|other| other.name == resource.name) {
            let problem = format!("{} is listed twice", resource.name);
            return Err(ConfigError { path, problem });
        }
        resources.push(resource);
    }
    warnings.extend(fields.unknown());
    Ok(SharingConfig {
        strategy,
        rename_by_default,
        // As in NVIDIA's plugin: two replicas under MPS may be of one GPU, and have no more of it than one.
        fail_requests_greater_than_one: fails.unwrap_or(strategy == SharingStrategy::Mps),
        resources,
    })
}

fn resource(
    mut fields: Fields<'_>,
    rename_by_default: bool,
    warnings: &mut Vec<String>,
) -> Result<SharedResource, ConfigError> {
    let name = with_prefix(fields.required_text("name")?);
    check_name(&name).map_err(|problem| fields.error("name", problem))?;
    let replicas = match fields.value("replicas") {
        None => return Err(fields.error("replicas", "is required".to_owned())),
        Some(value) => value.as_u64().filter(|count| *count >= MIN_REPLICAS),
    };
    let replicas = replicas.and_then(|count| u32::try_from(count).ok()).ok_or_else(|| {
        fields.error("replicas", format!("must be a whole number, at least {MIN_REPLICAS}"))
    })?;
    let renamed = fields.text("rename")?.filter(|rename| !rename.is_empty());
    let default = format!("{name}{SHARED_SUFFIX}");
    if renamed.is_some_and(|rename| !rename_by_default || with_prefix(rename) != default) {
        warnings.push(format!("{} has no effect, as in NVIDIA's plugin", fields.path("rename")));
    }
    if fields.value("devices").is_some_and(|devices| devices != "all") {
        let path = fields.path("devices");
        warnings
            .push(format!("{path} has no effect, as in NVIDIA's plugin: all devices are shared"));
    }
    warnings.extend(fields.unknown());
    Ok(SharedResource { name, replicas })
}

fn with_prefix(name: &str) -> String {
    if name.starts_with(PREFIX) { name.to_owned() } else { format!("{PREFIX}{name}") }
}

/// Whether a name is one of a resource: short, and a DNS subdomain after its prefix.
fn check_name(name: &str) -> Result<(), String> {
    if name.len() > MAX_NAME {
        return Err(format!("{name:?} is longer than {MAX_NAME} characters"));
    }
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        let is_edge_dash = label.starts_with('-') || label.ends_with('-');
        !label.is_empty() && !is_edge_dash && label.bytes().all(is_inner)
    };
    if name.trim_start_matches(PREFIX).split('.').all(is_label) {
        return Ok(());
    }
    Err(format!(
        "{name:?} is not a resource: lower-case letters, digits, dashes and dots follow {PREFIX}"
    ))
}
