//! Selects the config of a request.

use super::{
    ConfigEntry, ConfigError, ConfigSource, DeviceNodesConfig, GpuShareConfig, OpaqueConfig,
    ParseBytes, decode,
};

/// A decoded entry of a claim's configs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedConfig {
    /// Origin of the config.
    pub source: ConfigSource,
    /// Requests to which it applies; empty means all.
    pub requests: Vec<String>,
    /// The config.
    pub config: OpaqueConfig,
}

/// Type of an allocated device: its attribute `type`, and whether it is allocated in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceType {
    /// A whole GPU.
    Gpu,
    /// A share of a GPU.
    Share,
    /// A MIG device.
    Mig,
    /// A passed-through GPU.
    Vfio,
    /// A channel of a `ComputeDomain`.
    Channel,
    /// The daemon of a `ComputeDomain`.
    Daemon,
}

/// A config that does not fit a request's device. Either it names the request, or it fits no device type of this
/// driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMismatch {
    /// The request.
    pub request: String,
    /// Kind of the config.
    pub kind: &'static str,
    /// Type of the device.
    pub device_type: &'static str,
}

/// Decodes the entries for `driver` and ignores others. The error contains the origin of the invalid entry.
pub fn decode_entries(
    entries: &[ConfigEntry],
    driver: &str,
    parse_bytes: ParseBytes,
) -> Result<Vec<DecodedConfig>, (ConfigSource, ConfigError)> {
    let ours = entries.iter().filter(|entry| entry.driver == driver);
    ours.map(|entry| {
        let config =
            decode(&entry.parameters, parse_bytes).map_err(|error| (entry.source, error))?;
        if matches!(config, OpaqueConfig::DeviceNodes(_)) && entry.source == ConfigSource::Claim {
            let problem =
                "is for a DeviceClass only: an administrator decides who gets these nodes";
            let (path, problem) = ("kind".to_owned(), format!("{:?} {problem}", config.kind()));
            return Err((entry.source, ConfigError { path, problem }));
        }
        Ok(DecodedConfig { source: entry.source, requests: entry.requests.clone(), config })
    })
    .collect()
}

/// The config of a request (`request` or `request/subrequest`) on a device of a type; `None` means the type's default.
///
/// A claim's config takes precedence over its class's, and a later one over an earlier one. A config that names the
/// request must fit the device. A config for all requests is skipped if it does not fit, so that a claim can have one
/// for each device type. A config that fits no type at all is always an error.
///
/// Configs of shares and of device nodes are skipped here; see [`for_share`] and [`device_nodes_for`].
pub fn for_request<'a>(
    configs: &'a [DecodedConfig],
    request: &str,
    device_type: DeviceType,
) -> Result<Option<&'a OpaqueConfig>, ConfigMismatch> {
    let sources = [ConfigSource::Claim, ConfigSource::Class];
    find(configs, &sources, request, device_type, |config| {
        let has_own_function =
            matches!(config, OpaqueConfig::GpuShare(_) | OpaqueConfig::DeviceNodes(_));
        (!has_own_function).then_some(config)
    })
}

/// The config of the share that serves a request. Which configs apply is decided as in [`for_request`].
///
/// A field of the class's config takes precedence over the claim's: administrators write classes, and a share's config
/// concerns the other containers of its GPU.
pub fn for_share(
    configs: &[DecodedConfig],
    request: &str,
) -> Result<GpuShareConfig, ConfigMismatch> {
    let of = |source| {
        find(configs, &[source], request, DeviceType::Share, |config| match config {
            OpaqueConfig::GpuShare(config) => Some(*config),
            _ => None,
        })
    };
    let class = of(ConfigSource::Class)?.unwrap_or_default();
    Ok(class.or(of(ConfigSource::Claim)?.unwrap_or_default()))
}

/// The device nodes for a request beside those of its device: all that configs of its class name.
pub fn device_nodes_for(configs: &[DecodedConfig], request: &str) -> DeviceNodesConfig {
    let configs = configs.iter().filter(|entry| entry.applies_to(request));
    configs.fold(DeviceNodesConfig::default(), |nodes, entry| match entry.config {
        OpaqueConfig::DeviceNodes(more) => nodes.and(more),
        _ => nodes,
    })
}

impl DecodedConfig {
    /// Whether it names the request or its parent.
    fn names(&self, request: &str) -> bool {
        let parent = request.split_once('/').map_or(request, |(parent, _)| parent);
        self.requests.iter().any(|name| name == request || name == parent)
    }

    /// Whether it is for the request: by name, or for all.
    fn applies_to(&self, request: &str) -> bool {
        self.requests.is_empty() || self.names(request)
    }
}

/// The first fitting config in order of precedence for which `wanted` returns a value.
fn find<'a, T>(
    configs: &'a [DecodedConfig],
    sources: &[ConfigSource],
    request: &str,
    device_type: DeviceType,
    wanted: impl Fn(&'a OpaqueConfig) -> Option<T>,
) -> Result<Option<T>, ConfigMismatch> {
    for &source in sources {
        let of_source = configs.iter().rev().filter(|entry| entry.source == source);
        for entry in of_source.filter(|entry| entry.applies_to(request)) {
            let is_named = entry.names(request);
            if device_type.takes(&entry.config) {
                match wanted(&entry.config) {
                    Some(config) => return Ok(Some(config)),
                    None => continue,
                }
            }
            if is_named || !device_type.of_driver().iter().any(|kind| kind.takes(&entry.config)) {
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
    /// All types of the same driver.
    fn of_driver(self) -> &'static [Self] {
        match self {
            Self::Gpu | Self::Share | Self::Mig | Self::Vfio => {
                &[Self::Gpu, Self::Share, Self::Mig, Self::Vfio]
            }
            Self::Channel | Self::Daemon => &[Self::Channel, Self::Daemon],
        }
    }

    /// The device type, for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Share => "gpu in shares",
            Self::Mig => "mig",
            Self::Vfio => "vfio",
            Self::Channel => "channel",
            Self::Daemon => "daemon",
        }
    }

    /// Whether a config applies to devices of this type.
    fn takes(self, config: &OpaqueConfig) -> bool {
        matches!(
            (self, config),
            (Self::Gpu | Self::Share, OpaqueConfig::Gpu(_))
                | (Self::Share, OpaqueConfig::GpuShare(_))
                | (Self::Mig, OpaqueConfig::MigDevice(_))
                | (Self::Gpu | Self::Share | Self::Mig, OpaqueConfig::DeviceNodes(_))
                | (Self::Vfio, OpaqueConfig::VfioDevice(_))
                | (Self::Channel, OpaqueConfig::ComputeDomainChannel(_))
                | (Self::Daemon, OpaqueConfig::ComputeDomainDaemon(_))
        )
    }
}
