//! Decodes JSON to a validated config.

use serde_json::Value;

use super::{
    ChannelAllocationMode, ComputeDomainChannelConfig, ComputeDomainDaemonConfig, ConfigError,
    GpuConfig, IommuBackendPolicy, IommuConfig, MigDeviceConfig, MpsConfig, OpaqueConfig,
    ParseBytes, Sharing, TimeSlice, VfioDeviceConfig, device_nodes, share,
};
use crate::fields::{Fields, wrong_type};
use crate::names::{NVIDIA_API_VERSION, OCTAVO_API_VERSION};

/// Unit of memory limits in the MPS control daemon, in bytes.
const MPS_MEMORY_UNIT: i128 = 1 << 20;

/// Decodes and validates one config.
pub fn decode(config: &Value, parse_bytes: ParseBytes) -> Result<OpaqueConfig, ConfigError> {
    let mut fields = Fields::of(config, "")?;
    let decoded = match fields.required_text("apiVersion")? {
        NVIDIA_API_VERSION => nvidia(&mut fields, parse_bytes)?,
        OCTAVO_API_VERSION => octavo(&mut fields, parse_bytes)?,
        version => {
            let problem =
                format!("{version:?} is not {NVIDIA_API_VERSION} and not {OCTAVO_API_VERSION}");
            return Err(fields.error("apiVersion", problem));
        }
    };
    let is_empty = matches!(decoded, OpaqueConfig::DeviceNodes(nodes) if nodes.is_empty());
    if is_empty {
        // An unknown field is the likelier mistake, and is reported first.
        let problem =
            "names no device nodes: set one of gds, gdrcopy, infiniband, nvswitch to true";
        let error = fields.error("kind", problem.to_owned());
        fields.end()?;
        return Err(error);
    }
    fields.end()?;
    Ok(decoded)
}

/// A config of Octavo's own group.
fn octavo(fields: &mut Fields<'_>, parse_bytes: ParseBytes) -> Result<OpaqueConfig, ConfigError> {
    match fields.required_text("kind")? {
        "GpuShareConfig" => Ok(OpaqueConfig::GpuShare(share::decode(fields, parse_bytes)?)),
        "DeviceNodesConfig" => Ok(OpaqueConfig::DeviceNodes(device_nodes::decode(fields)?)),
        kind => {
            let problem = format!(
                "{kind:?} is not one of GpuShareConfig, DeviceNodesConfig, which {OCTAVO_API_VERSION} has"
            );
            Err(fields.error("kind", problem))
        }
    }
}

/// A config of NVIDIA's group.
fn nvidia(fields: &mut Fields<'_>, parse_bytes: ParseBytes) -> Result<OpaqueConfig, ConfigError> {
    Ok(match fields.required_text("kind")? {
        "GpuConfig" => {
            let sharing = sharing(fields, true, parse_bytes)?;
            OpaqueConfig::Gpu(GpuConfig { sharing })
        }
        "MigDeviceConfig" => {
            let sharing = sharing(fields, false, parse_bytes)?;
            OpaqueConfig::MigDevice(MigDeviceConfig { sharing })
        }
        "VfioDeviceConfig" => OpaqueConfig::VfioDevice(VfioDeviceConfig { iommu: iommu(fields)? }),
        "ComputeDomainChannelConfig" => {
            let domain_id = domain_id(fields)?;
            let modes =
                [("Single", ChannelAllocationMode::Single), ("All", ChannelAllocationMode::All)];
            let allocation_mode = fields.word("allocationMode", &modes)?.unwrap_or_default();
            OpaqueConfig::ComputeDomainChannel(ComputeDomainChannelConfig {
                domain_id,
                allocation_mode,
            })
        }
        "ComputeDomainDaemonConfig" => {
            let domain_id = domain_id(fields)?;
            OpaqueConfig::ComputeDomainDaemon(ComputeDomainDaemonConfig { domain_id })
        }
        kind => {
            if matches!(kind, "GpuShareConfig" | "DeviceNodesConfig") {
                let problem = format!("{kind:?} is of {OCTAVO_API_VERSION}");
                return Err(fields.error("kind", problem));
            }
            let problem = format!(
                "{kind:?} is not one of GpuConfig, MigDeviceConfig, VfioDeviceConfig, \
                 ComputeDomainChannelConfig, ComputeDomainDaemonConfig"
            );
            return Err(fields.error("kind", problem));
        }
    })
}

/// `sharing`: only settings of the chosen strategy are allowed.
fn sharing(
    parent: &mut Fields<'_>,
    has_time_slice: bool,
    parse_bytes: ParseBytes,
) -> Result<Option<Sharing>, ConfigError> {
    #[derive(Clone, Copy, PartialEq)]
    enum Strategy {
        TimeSlicing,
        Mps,
    }
    let Some(mut fields) = parent.object("sharing")? else { return Ok(None) };
    let strategies = [("TimeSlicing", Strategy::TimeSlicing), ("MPS", Strategy::Mps)];
    let strategy = fields
        .word("strategy", &strategies)?
        .ok_or_else(|| fields.error("strategy", "is required".to_owned()))?;
    let time_slice = if has_time_slice { fields.object("timeSlicingConfig")? } else { None };
    let mps = fields.object("mpsConfig")?;
    let stray = match strategy {
        Strategy::TimeSlicing => mps.as_ref().map(|_| ("mpsConfig", "TimeSlicing")),
        Strategy::Mps => time_slice.as_ref().map(|_| ("timeSlicingConfig", "MPS")),
    };
    if let Some((name, strategy)) = stray {
        return Err(fields.error(name, format!("does not go with strategy {strategy}")));
    }
    fields.end()?;
    Ok(Some(match strategy {
        Strategy::TimeSlicing => Sharing::TimeSlicing(match time_slice {
            Some(fields) => interval(fields)?,
            None => TimeSlice::Default,
        }),
        Strategy::Mps => Sharing::Mps(match mps {
            Some(fields) => mps_config(fields, parse_bytes)?,
            None => MpsConfig::default(),
        }),
    }))
}

/// `sharing.timeSlicingConfig`.
fn interval(mut fields: Fields<'_>) -> Result<TimeSlice, ConfigError> {
    let intervals = [
        ("Default", TimeSlice::Default),
        ("Short", TimeSlice::Short),
        ("Medium", TimeSlice::Medium),
        ("Long", TimeSlice::Long),
    ];
    let interval = fields.word("interval", &intervals)?.unwrap_or_default();
    fields.end()?;
    Ok(interval)
}

/// `sharing.mpsConfig`.
fn mps_config(mut fields: Fields<'_>, parse_bytes: ParseBytes) -> Result<MpsConfig, ConfigError> {
    const PERCENTAGE: &str = "defaultActiveThreadPercentage";
    let percentage = match fields.value(PERCENTAGE) {
        None => None,
        Some(Value::Number(number)) => {
            let percentage = number.as_u64().and_then(|number| u8::try_from(number).ok());
            let percentage = percentage.filter(|percentage| (1..=100).contains(percentage));
            let problem = || format!("{number} is not a whole number from 1 to 100");
            Some(percentage.ok_or_else(|| fields.error(PERCENTAGE, problem()))?)
        }
        Some(other) => return Err(wrong_type(&fields.path(PERCENTAGE), "a number", other)),
    };
    let limit_name = "defaultPinnedDeviceMemoryLimit";
    let limit_path = fields.path(limit_name);
    let limit = fields
        .value(limit_name)
        .map(|value| memory_limit(value, &limit_path, parse_bytes))
        .transpose()?;
    let per_device_name = "defaultPerDevicePinnedMemoryLimit";
    let per_device_path = fields.path(per_device_name);
    let mut per_device = std::collections::BTreeMap::new();
    match fields.value(per_device_name) {
        None => {}
        Some(Value::Object(limits)) => {
            for (device, value) in limits {
                let path = format!("{per_device_path}.{device}");
                if !is_device_key(device) {
                    let problem = "is neither a GPU UUID nor an index".to_owned();
                    return Err(ConfigError { path, problem });
                }
                per_device.insert(device.clone(), memory_limit(value, &path, parse_bytes)?);
            }
        }
        Some(other) => return Err(wrong_type(&per_device_path, "an object", other)),
    }
    let multi_user = fields.bool("multiUser")?.unwrap_or_default();
    fields.end()?;
    Ok(MpsConfig {
        default_active_thread_percentage: percentage,
        default_pinned_device_memory_limit: limit,
        default_per_device_pinned_memory_limit: per_device,
        multi_user,
    })
}

/// A pinned-memory limit: a quantity as text or number, at least one MPS unit.
fn memory_limit(value: &Value, path: &str, parse_bytes: ParseBytes) -> Result<i128, ConfigError> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        other => return Err(wrong_type(path, "a quantity", other)),
    };
    let error = |problem| ConfigError { path: path.to_owned(), problem };
    let bytes = parse_bytes(&text).map_err(error)?;
    if bytes < MPS_MEMORY_UNIT {
        return Err(error(format!("{text:?} is less than 1Mi, the smallest limit of MPS")));
    }
    Ok(bytes)
}

/// Whether text identifies a device for its own limit.
fn is_device_key(key: &str) -> bool {
    let is_index = !key.is_empty() && key.bytes().all(|b| b.is_ascii_digit());
    is_index || key.starts_with("GPU-") || key.starts_with("MIG-")
}

/// `iommu`.
fn iommu(parent: &mut Fields<'_>) -> Result<Option<IommuConfig>, ConfigError> {
    let Some(mut fields) = parent.object("iommu")? else { return Ok(None) };
    let policies = [
        ("LegacyOnly", IommuBackendPolicy::LegacyOnly),
        ("PreferIommuFD", IommuBackendPolicy::PreferIommuFd),
    ];
    let backend_policy = fields.word("backendPolicy", &policies)?.unwrap_or_default();
    let enable_api_device = fields.bool("enableAPIDevice")?.unwrap_or_default();
    fields.end()?;
    Ok(Some(IommuConfig { backend_policy, enable_api_device }))
}

/// `domainID`: a UID in the API server's format.
fn domain_id(fields: &mut Fields<'_>) -> Result<String, ConfigError> {
    let id = fields.required_text("domainID")?;
    let groups: Vec<_> = id.split('-').collect();
    let is_uid = groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|b| b.is_ascii_hexdigit()));
    if !is_uid {
        return Err(fields.error("domainID", format!("{id:?} is not a UID of a ComputeDomain")));
    }
    Ok(id.to_owned())
}
