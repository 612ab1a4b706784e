//! How containers share the devices of a claim: what its config asked for, and what the driver recorded as done.

use octavo_api::config::{
    ConfigEntry, DecodedConfig, DeviceType, MpsConfig, OpaqueConfig, Sharing, TimeSlice,
    decode_entries, for_request,
};
use octavo_api::names::DRIVER;
use serde::Deserialize;

use super::PreparedDevice;
use super::device::DeviceKind;
use crate::quantity::whole_bytes;

/// How containers share the devices of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedSharing {
    /// What the claim's config or its class's asks for.
    pub requested: RequestedSharing,
    /// Id of the daemon of the Multi-Process Service that the driver started. Its Deployment is `mps-control-daemon-<id>`.
    pub mps_daemon: Option<String>,
    /// Whether the driver recorded that the service was set up; `None` if the release does not record it.
    pub is_mps_applied: Option<bool>,
    /// Whether the driver recorded that it set the time slice; `None` if the release does not record it (before 0.4).
    pub is_time_slice_applied: Option<bool>,
}

/// What the config of a group asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedSharing {
    /// Nothing: the driver's default, which is its default time slice.
    Default,
    /// Turns, with a time slice.
    TimeSlicing(TimeSlice),
    /// The Multi-Process Service, with these limits.
    Mps(MpsConfig),
    /// The config has fields or values that this program does not know, or does not fit the device. The text says which.
    Unknown(String),
}

/// `DeviceConfigState` of the driver.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RawConfigState {
    #[serde(rename = "mpsControlDaemonID")]
    mps_control_daemon_id: String,
    mps_applied: Option<bool>,
    time_slice_applied: Option<bool>,
}

/// How the devices of a group are shared. All of a group have one config.
pub(super) fn applied(
    configs: &[ConfigEntry],
    devices: &[PreparedDevice],
    state: RawConfigState,
) -> AppliedSharing {
    let requested = devices.first().map_or(RequestedSharing::Default, |device| {
        let device_type = match device.kind {
            DeviceKind::Gpu { .. } => DeviceType::Gpu,
            DeviceKind::Mig(_) => DeviceType::Mig,
            DeviceKind::Vfio { .. } => DeviceType::Vfio,
        };
        let request = device.requests.first().map(String::as_str).unwrap_or_default();
        requested(configs, request, device_type).unwrap_or_else(RequestedSharing::Unknown)
    });
    AppliedSharing {
        requested,
        mps_daemon: Some(state.mps_control_daemon_id).filter(|id| !id.is_empty()),
        is_mps_applied: state.mps_applied,
        is_time_slice_applied: state.time_slice_applied,
    }
}

fn requested(
    configs: &[ConfigEntry],
    request: &str,
    device_type: DeviceType,
) -> Result<RequestedSharing, String> {
    // The driver compares whole names: a config for `gpus` does not serve `gpus/large` there.
    let of_request = |entry: &&ConfigEntry| {
        entry.requests.is_empty() || entry.requests.iter().any(|name| name == request)
    };
    let entries: Vec<ConfigEntry> = configs.iter().filter(of_request).cloned().collect();
    let configs: Vec<DecodedConfig> = decode_entries(&entries, DRIVER, whole_bytes)
        .map_err(|(source, error)| format!("the config of the {}: {error}", source.object()))?;
    let config = for_request(&configs, request, device_type).map_err(|mismatch| {
        format!("a {} does not fit a device of type {}", mismatch.kind, mismatch.device_type)
    })?;
    let sharing = match config {
        Some(OpaqueConfig::Gpu(config)) => config.sharing.as_ref(),
        Some(OpaqueConfig::MigDevice(config)) => config.sharing.as_ref(),
        _ => None,
    };
    Ok(match sharing {
        None => RequestedSharing::Default,
        Some(Sharing::TimeSlicing(slice)) => RequestedSharing::TimeSlicing(*slice),
        Some(Sharing::Mps(limits)) => RequestedSharing::Mps(limits.clone()),
    })
}
