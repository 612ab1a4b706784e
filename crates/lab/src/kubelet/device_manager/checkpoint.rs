//! The file of allocated devices, in the kubelet's form (`kubelet_internal_checkpoint`).
//!
//! It names the devices of every container before that is created. A kubelet that starts again reads them back, and asks no
//! plugin for what its pods have.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use k8s_openapi::ByteString;
use octavo_kubelet_api::Message as _;
use octavo_kubelet_api::device_plugin::v1beta1::ContainerAllocateResponse;
use serde::{Deserialize, Serialize};

use super::allocations::{Allocated, Allocations, ContainerKey, DevicesByNumaNode};
use super::resources::{DeviceId, ResourceName};
use crate::kubelet::json_file;

/// Name of the file, in the folder of plugins' sockets.
pub(crate) const FILE: &str = "kubelet_internal_checkpoint";

/// The file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Checkpoint {
    data: Data,
    checksum: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Data {
    /// `None` where the kubelet writes null: no container has devices.
    pod_device_entries: Option<Vec<Entry>>,
    registered_devices: BTreeMap<ResourceName, Vec<DeviceId>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    container_name: String,
    resource_name: ResourceName,
    #[serde(rename = "DeviceIDs")]
    device_ids: DevicesByNumaNode,
    /// The plugin's answer, as protobuf.
    alloc_resp: ByteString,
}

/// What an earlier process left.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Restored {
    /// Devices of containers.
    pub(crate) allocations: Allocations,
    /// Resources of plugins that were registered.
    pub(crate) resources: Vec<ResourceName>,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckpointError {
    /// It cannot be read, or is no JSON of this form.
    #[error(transparent)]
    Read(#[from] std::io::Error),
    /// Its content is not what was written.
    #[error("checkpoint is corrupted: checksum {found}, expected {expected}")]
    Corrupt { found: u64, expected: u64 },
    /// The answer of a plugin is no message.
    #[error("the answer of the plugin of {0} cannot be decoded")]
    Answer(ResourceName),
}

/// Replaces the file of the folder `folder` atomically. `healthy` are the healthy devices of each registered resource.
pub(crate) fn save(
    folder: &Path,
    allocations: &Allocations,
    healthy: BTreeMap<ResourceName, Vec<DeviceId>>,
) -> std::io::Result<()> {
    let entries: Vec<Entry> = allocations
        .entries()
        .map(|(key, resource, allocated)| Entry {
            pod_uid: key.pod.to_owned(),
            container_name: key.container.to_owned(),
            resource_name: resource.clone(),
            device_ids: allocated.devices.clone(),
            alloc_resp: ByteString(allocated.answer.encode_to_vec()),
        })
        .collect();
    let data = Data {
        pod_device_entries: Some(entries).filter(|entries| !entries.is_empty()),
        registered_devices: healthy,
    };
    let checksum = data.checksum();
    json_file::save(&folder.join(FILE), &Checkpoint { data, checksum })
}

/// Reads the file of a folder; a missing one is empty.
pub(crate) fn load(folder: &Path) -> Result<Restored, CheckpointError> {
    let path = folder.join(FILE);
    if !path.exists() {
        return Ok(Restored::default());
    }
    let Checkpoint { data, checksum } = json_file::load(&path)?;
    let expected = data.checksum();
    if checksum != expected {
        return Err(CheckpointError::Corrupt { found: checksum, expected });
    }
    let mut restored = Restored {
        resources: data.registered_devices.into_keys().collect(),
        allocations: Allocations::default(),
    };
    for entry in data.pod_device_entries.into_iter().flatten() {
        let answer = ContainerAllocateResponse::decode(entry.alloc_resp.0.as_slice());
        let answer = answer.map_err(|_| CheckpointError::Answer(entry.resource_name.clone()))?;
        let key = ContainerKey { pod: &entry.pod_uid, container: &entry.container_name };
        let allocated = Allocated { devices: entry.device_ids, answer };
        restored.allocations.insert(key, &entry.resource_name, allocated);
    }
    Ok(restored)
}

impl Data {
    /// The kubelet's checksum: FNV-1a of 32 bits over the data as go-spew prints it (`%#v` with sorted keys).
    fn checksum(&self) -> u64 {
        let text = self.spew();
        let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        u64::from(text.bytes().fold(0x811c_9dc5, step))
    }

    fn spew(&self) -> String {
        let mut text = "(checkpoint.checkpointData){PodDeviceEntries:".to_owned();
        text.push_str("([]checkpoint.PodDevicesEntry)");
        match &self.pod_device_entries {
            None => text.push_str("<nil>"),
            Some(entries) => text.push_str(&list(entries.iter().map(Entry::spew))),
        }
        let devices = self.registered_devices.iter();
        let devices = devices.map(|(name, ids)| format!("{name}:{}", list(ids.iter().cloned())));
        // Writing to a string cannot fail.
        let _ = write!(text, " RegisteredDevices:(map[string][]string)map{}}}", list(devices));
        text
    }
}

impl Entry {
    fn spew(&self) -> String {
        let devices = self.device_ids.iter();
        let devices = devices.map(|(node, ids)| format!("{node}:{}", list(ids.iter().cloned())));
        format!(
            "{{PodUID:(string){} ContainerName:(string){} ResourceName:(string){} \
             DeviceIDs:(checkpoint.DevicesPerNUMA)map{} AllocResp:([]uint8){}}}",
            self.pod_uid,
            self.container_name,
            self.resource_name,
            list(devices),
            list(self.alloc_resp.0.iter().map(u8::to_string)),
        )
    }
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests;
