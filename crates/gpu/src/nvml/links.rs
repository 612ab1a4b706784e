//! NVLink of a GPU, by link.

use std::collections::BTreeMap;

use nvml_wrapper_sys::bindings as sys;

use super::call::call;
use super::device::{Device, address, pci_info};
use super::names;
use super::read::optional;
use crate::{DriverError, NvLink, PciAddress};

/// The active links of one GPU, with PCI addresses of their remote ends.
pub(super) struct Links {
    version: u32,
    active: u32,
    switched: bool,
    ends: Vec<PciAddress>,
}

impl Links {
    /// The links with indexes of their remote ends; `at` maps the addresses of the node's GPUs.
    pub(super) fn among(self, at: &BTreeMap<PciAddress, u32>) -> NvLink {
        let mut peers = BTreeMap::new();
        if !self.switched {
            for index in self.ends.iter().filter_map(|end| at.get(end)) {
                *peers.entry(*index).or_insert(0) += 1;
            }
        }
        NvLink {
            version: self.version,
            links: self.active,
            switched: self.switched,
            peers: peers.into_iter().collect(),
        }
    }
}

/// The active links; `None` if the GPU has none. Fails only if the GPU is lost.
pub(super) fn links(device: Device<'_>) -> Result<Option<Links>, DriverError> {
    let mut found = Links { version: 0, active: 0, switched: false, ends: Vec::new() };
    for link in 0..sys::NVML_NVLINK_MAX_LINKS {
        let active = match active(device, link) {
            // The other links would return the same.
            Err(DriverError::Missing { .. }) => return Ok(None),
            answer => optional(answer)?.unwrap_or(false),
        };
        if !active {
            continue;
        }
        found.active += 1;
        if found.version == 0 {
            let version = optional(version(device, link))?.unwrap_or(0);
            found.version = names::nvlink_generation(version);
        }
        match optional(remote_type(device, link))? {
            Some(sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH) => {
                found.switched = true;
            }
            _ => found.ends.extend(optional(remote(device, link))?),
        }
    }
    Ok((found.active > 0).then_some(found))
}

fn active(device: Device<'_>, link: u32) -> Result<bool, DriverError> {
    let state = device.get_at(call!(device.library(), nvmlDeviceGetNvLinkState)?, link, 0)?;
    Ok(state != 0)
}

fn version(device: Device<'_>, link: u32) -> Result<u32, DriverError> {
    device.get_at(call!(device.library(), nvmlDeviceGetNvLinkVersion)?, link, 0)
}

fn remote_type(device: Device<'_>, link: u32) -> Result<u32, DriverError> {
    let unknown = sys::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    device.get_at(call!(device.library(), nvmlDeviceGetNvLinkRemoteDeviceType)?, link, unknown)
}

fn remote(device: Device<'_>, link: u32) -> Result<PciAddress, DriverError> {
    let call = call!(device.library(), nvmlDeviceGetNvLinkRemotePciInfo_v2)?;
    Ok(address(&device.get_at(call, link, pci_info())?))
}

#[cfg(test)]
mod tests;
