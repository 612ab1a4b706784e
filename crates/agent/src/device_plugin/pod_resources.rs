//! What the kubelet has of device plugins: which devices it may give out, and which pods have some (`PodResources` v1).
//!
//! Nothing tells a plugin which pod gets its devices, and when that pod ends. So the kubelet is asked. It leaves out devices of init
//! containers, and one that has just started may not know its pods yet. So its file of allocated devices counts, too: an entry
//! counts while its pod has a cgroup. The file alone counts while no kubelet runs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use octavo_kubelet_api::pod_resources::v1::pod_resources_lister_client::PodResourcesListerClient;
use octavo_kubelet_api::pod_resources::v1::{AllocatableResourcesRequest, ListPodResourcesRequest};
use octavo_node::NodePaths;
use serde::Deserialize;
use tokio::time::timeout;
use tonic::transport::{Channel, Endpoint};

use super::resources::{is_gpu_resource, part_uuid};

/// The kubelet's socket, below its root.
const SOCKET: &str = "pod-resources/kubelet.sock";
/// The kubelet's file of allocated devices, in the folder of plugins' sockets.
const CHECKPOINT: &str = "kubelet_internal_checkpoint";
/// Time for an answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Depth to which cgroups of pods are searched: controller, parents, `kubepods`, class, pod.
const CGROUP_DEPTH: usize = 6;
/// Most bytes of an answer: a node may have hundreds of pods.
const MAX_ANSWER: usize = 64 << 20;

/// What a kubelet has of GPUs from device plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PluginState {
    /// Resources with devices that the kubelet may give out, by name, and the UUIDs of the devices.
    pub(crate) offered: BTreeMap<String, BTreeSet<String>>,
    /// Pods with devices, and the UUIDs of the devices. A pod is its namespace and name, or its UID where that is all that is known.
    pub(crate) pods: BTreeMap<String, BTreeSet<String>>,
}

/// Asks the kubelet.
///
/// # Errors
///
/// The kubelet runs and does not answer, or its file cannot be read.
pub(crate) async fn plugin_state(paths: &NodePaths) -> anyhow::Result<PluginState> {
    let socket = paths.kubelet_root.join(SOCKET);
    let endpoint = Endpoint::try_from(format!("unix://{}", socket.display()))?;
    let connected = timeout(TIMEOUT, endpoint.connect()).await;
    let mut state = match connected.context("the kubelet does not accept a connection")? {
        Ok(channel) => {
            timeout(TIMEOUT, asked(channel)).await.context("the kubelet is silent")??
        }
        Err(_) => PluginState::default(),
    };
    let file = paths.device_plugin_root.join(CHECKPOINT);
    let listed: BTreeSet<String> = state.pods.values().flatten().cloned().collect();
    for (pod, mut uuids) in recorded(&file, &paths.cgroup_root)? {
        // The file has no names. What a listed pod has is known.
        uuids.retain(|uuid| !listed.contains(uuid));
        if !uuids.is_empty() {
            state.pods.insert(pod, uuids);
        }
    }
    Ok(state)
}

async fn asked(channel: Channel) -> anyhow::Result<PluginState> {
    let client = PodResourcesListerClient::new(channel);
    let mut client = client.max_decoding_message_size(MAX_ANSWER);
    let request = AllocatableResourcesRequest {};
    let answer = client.get_allocatable_resources(request).await.context("ask the kubelet")?;
    let devices = answer.into_inner().devices.into_iter();
    let ours = devices.filter(|it| is_gpu_resource(&it.resource_name) && !it.device_ids.is_empty());
    let mut offered: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for device in ours {
        let ids = device.device_ids.iter().map(|id| part_uuid(id).to_owned());
        offered.entry(device.resource_name.clone()).or_default().extend(ids);
    }
    // After the look at what may be given out: what was given out before that is in this answer.
    let answer = client.list(ListPodResourcesRequest {}).await.context("ask the kubelet")?;
    let mut pods: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pod in answer.into_inner().pod_resources {
        let devices = pod.containers.iter().flat_map(|container| &container.devices);
        let ours = devices.filter(|it| is_gpu_resource(&it.resource_name));
        let ids = ours.flat_map(|devices| &devices.device_ids);
        let uuids: BTreeSet<String> = ids.map(|id| part_uuid(id).to_owned()).collect();
        if !uuids.is_empty() {
            pods.insert(format!("{}/{}", pod.namespace, pod.name), uuids);
        }
    }
    Ok(PluginState { offered, pods })
}

/// The kubelet's file of allocated devices (`DeviceManagerCheckpoint`).
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Checkpoint {
    data: Data,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Data {
    pod_device_entries: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "PodUID")]
    pod_uid: String,
    #[serde(rename = "ResourceName")]
    resource_name: String,
    /// Ids by NUMA node.
    #[serde(rename = "DeviceIDs")]
    device_ids: BTreeMap<String, Vec<String>>,
}

/// Pods with GPUs in the kubelet's file, by UID, as far as they have a cgroup.
fn recorded(file: &Path, cgroups: &Path) -> anyhow::Result<BTreeMap<String, BTreeSet<String>>> {
    let text = match std::fs::read_to_string(file) {
        Ok(text) => text,
        // No plugin ever registered.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error).with_context(|| format!("read {}", file.display())),
    };
    let checkpoint: Checkpoint =
        serde_json::from_str(&text).with_context(|| format!("read {}", file.display()))?;
    let entries = checkpoint.data.pod_device_entries.into_iter().flatten();
    let held = entries.filter(|entry| {
        let has_devices = entry.device_ids.values().any(|ids| !ids.is_empty());
        is_gpu_resource(&entry.resource_name) && has_devices
    });
    let mut pods: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in held.filter(|entry| has_cgroup(cgroups, &entry.pod_uid, CGROUP_DEPTH)) {
        let uuids = entry.device_ids.values().flatten().map(|id| part_uuid(id).to_owned());
        pods.entry(format!("UID {}", entry.pod_uid)).or_default().extend(uuids);
    }
    Ok(pods)
}

/// Whether a pod has a cgroup below a folder: `pod<UID>`, or with systemd `kubepods-...-pod<UID>.slice` with underscores.
fn has_cgroup(folder: &Path, uid: &str, depth: usize) -> bool {
    let forms = [format!("pod{uid}"), format!("pod{}", uid.replace('-', "_"))];
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.any(|entry| {
        let name = entry.file_name();
        let is_it = forms.iter().any(|form| name.to_string_lossy().contains(form.as_str()));
        is_it || (depth > 1 && has_cgroup(&entry.path(), uid, depth - 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubelet_s_file_names_the_pods_with_gpus_that_exist() {
        let folder = tempfile::tempdir().unwrap();
        let (file, pods) = (folder.path().join("checkpoint"), folder.path().join("cgroups"));
        assert_eq!(recorded(&file, &pods).unwrap(), BTreeMap::new());
        let entry = |uid: &str, resource: &str, ids: serde_json::Value| {
            serde_json::json!({
                "PodUID": uid, "ContainerName": "c", "ResourceName": resource, "DeviceIDs": ids,
                "AllocResp": "",
            })
        };
        let entries = [
            entry("b", "nvidia.com/gpu", serde_json::json!({"0": ["GPU-1::0"], "1": ["GPU-2"]})),
            entry("a", "nvidia.com/mig-1g.10gb", serde_json::json!({"-1": ["MIG-1"]})),
            entry("c", "nvidia.com/hostdev", serde_json::json!({"-1": ["nic"]})),
            entry("gone", "nvidia.com/gpu", serde_json::json!({"0": ["GPU-3"]})),
        ];
        for cgroup in
            ["memory/kubepods/burstable/poda", "kubepods.slice/kubepods-podb.slice", "x/podc"]
        {
            std::fs::create_dir_all(pods.join(cgroup)).unwrap();
        }
        let text = serde_json::json!({
            "Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1,
        });
        std::fs::write(&file, text.to_string()).unwrap();
        let uuids = |uuids: &[&str]| uuids.iter().map(|uuid| (*uuid).to_owned()).collect();
        let wanted = [("UID a", uuids(&["MIG-1"])), ("UID b", uuids(&["GPU-1", "GPU-2"]))];
        let wanted = wanted.map(|(pod, uuids)| (pod.to_owned(), uuids));
        assert_eq!(recorded(&file, &pods).unwrap(), wanted.into());
        let none = serde_json::json!({"Data": {"PodDeviceEntries": null}, "Checksum": 1});
        std::fs::write(&file, none.to_string()).unwrap();
        assert_eq!(recorded(&file, &pods).unwrap(), BTreeMap::new());
        std::fs::write(&file, "{").unwrap();
        assert!(recorded(&file, &pods).is_err(), "half a file is no empty one");
    }
}
