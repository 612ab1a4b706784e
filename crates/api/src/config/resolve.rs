//! Which config a request gets.

use super::{
    ConfigEntry, ConfigError, ConfigSource, GpuShareConfig, OpaqueConfig, ParseBytes, decode,
};

/// A decoded entry of a claim's configs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedConfig {
    /// Who gave it.
    pub source: ConfigSource,
    /// Requests that it is for; empty means all.
    pub requests: Vec<String>,
    /// The config.
    pub config: OpaqueConfig,
}

/// Type of an allocated device, as its attribute `type` says, and whether it is given in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceType {
    /// A whole GPU.
    Gpu,
    /// A share of a GPU.
    Share,
    /// A MIG device.
    Mig,
    /// A GPU passed through.
    Vfio,
}

/// A config that does not go with the device of a request: given for the request by name, or for no type of
/// device of this driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMismatch {
    /// The request.
    pub request: String,
    /// Kind of the config.
    pub kind: &'static str,
    /// Type of the device.
    pub device_type: &'static str,
}

/// Decodes the entries that are for `driver`; others are not looked at. The error says who gave the
/// wrong one.
pub fn decode_entries(
    entries: &[ConfigEntry],
    driver: &str,
    parse_bytes: ParseBytes,
) -> Result<Vec<DecodedConfig>, (ConfigSource, ConfigError)> {
    let ours = entries.iter().filter(|entry| entry.driver == driver);
    ours.map(|entry| {
        let config =
            decode(&entry.parameters, parse_bytes).map_err(|error| (entry.source, error))?;
        Ok(DecodedConfig { source: entry.source, requests: entry.requests.clone(), config })
    })
    .collect()
}

/// The config of a request (`request` or `request/subrequest`) on a device of a type; `None` means the
/// type's default.
///
/// A claim's config wins over its class's, a later one over an earlier one. One that names the request
/// must fit the device; one for all requests is passed over where it does not fit, so that a claim of
/// several types of device can have one for each. One that fits no type at all is always an error.
///
/// What a share's own config says ([`for_share`]) stands beside this: it is passed over here.
pub fn for_request<'a>(
    configs: &'a [DecodedConfig],
    request: &str,
    device_type: DeviceType,
) -> Result<Option<&'a OpaqueConfig>, ConfigMismatch> {
    find(configs, request, device_type, |config| {
        (!matches!(config, OpaqueConfig::GpuShare(_))).then_some(config)
    })
}

/// The config of a share of a GPU that serves a request, by the rules of [`for_request`]; `None` means the
/// default.
pub fn for_share(
    configs: &[DecodedConfig],
    request: &str,
) -> Result<Option<GpuShareConfig>, ConfigMismatch> {
    find(configs, request, DeviceType::Share, |config| match config {
        OpaqueConfig::GpuShare(config) => Some(*config),
        _ => None,
    })
}

/// The first config in order of precedence that fits the device and of which something is wanted.
fn find<'a, T>(
    configs: &'a [DecodedConfig],
    request: &str,
    device_type: DeviceType,
    wanted: impl Fn(&'a OpaqueConfig) -> Option<T>,
) -> Result<Option<T>, ConfigMismatch> {
    let parent = request.split_once('/').map_or(request, |(parent, _)| parent);
    for source in [ConfigSource::Claim, ConfigSource::Class] {
        for entry in configs.iter().rev().filter(|entry| entry.source == source) {
            let is_named = entry.requests.iter().any(|name| name == request || name == parent);
            if !is_named && !entry.requests.is_empty() {
                continue;
            }
            if device_type.takes(&entry.config) {
                match wanted(&entry.config) {
                    Some(config) => return Ok(Some(config)),
                    None => continue,
                }
            }
            if is_named || !DeviceType::ALL.iter().any(|kind| kind.takes(&entry.config)) {
                return Err(ConfigMismatch {
                    request: request.to_owned(),
                    kind: entry.config.kind(),
                    device_type: device_type.name(),
                });
            }
        }
    }
    Ok(None)
}

impl DeviceType {
    /// Every type.
    const ALL: [Self; 4] = [Self::Gpu, Self::Share, Self::Mig, Self::Vfio];

    /// The value of the attribute `type`, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Share => "gpu in shares",
            Self::Mig => "mig",
            Self::Vfio => "vfio",
        }
    }

    /// Whether a config is for devices of this type.
    fn takes(self, config: &OpaqueConfig) -> bool {
        matches!(
            (self, config),
            (Self::Gpu | Self::Share, OpaqueConfig::Gpu(_))
                | (Self::Share, OpaqueConfig::GpuShare(_))
                | (Self::Mig, OpaqueConfig::MigDevice(_))
                | (Self::Vfio, OpaqueConfig::VfioDevice(_))
        )
    }
}
