use octavo_kubelet_api::device_plugin::v1beta1::CdiDevice;
use serde_json::{Value, json};

use super::*;
use crate::kubelet::device_manager::allocations::NO_NUMA_NODE;

fn allocations() -> Allocations {
    let mut allocations = Allocations::default();
    let answer = ContainerAllocateResponse {
        cdi_devices: vec![CdiDevice { name: "v/c=0".to_owned() }],
        ..ContainerAllocateResponse::default()
    };
    let devices = [(0, vec!["GPU-0".to_owned()]), (1, vec!["GPU-1".to_owned()])].into();
    let key = ContainerKey { pod: "uid-1", container: "main" };
    allocations.insert(key, "nvidia.com/gpu", Allocated { devices, answer });
    let devices = [(NO_NUMA_NODE, vec!["a".to_owned(), "b".to_owned()])].into();
    let key = ContainerKey { pod: "uid-2", container: "init" };
    allocations.insert(key, "b/nic", Allocated { devices, ..Allocated::default() });
    allocations
}

fn healthy() -> BTreeMap<ResourceName, Vec<DeviceId>> {
    let gpus = ["GPU-0", "GPU-1", "GPU-2"].map(str::to_owned).to_vec();
    [("nvidia.com/gpu".to_owned(), gpus), ("b/nic".to_owned(), Vec::new())].into()
}

fn content(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join(FILE)).unwrap()).unwrap()
}

#[test]
fn the_file_has_the_kubelet_s_form_and_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(load(folder.path()).unwrap(), Restored::default());
    save(folder.path(), &allocations(), healthy()).unwrap();
    assert_eq!(
        content(folder.path()),
        json!({
            "Data": {
                "PodDeviceEntries": [
                    {
                        "PodUID": "uid-1", "ContainerName": "main", "ResourceName": "nvidia.com/gpu",
                        "DeviceIDs": {"0": ["GPU-0"], "1": ["GPU-1"]}, "AllocResp": "KgcKBXYvYz0w",
                    },
                    {
                        "PodUID": "uid-2", "ContainerName": "init", "ResourceName": "b/nic",
                        "DeviceIDs": {"-1": ["a", "b"]}, "AllocResp": "",
                    },
                ],
                "RegisteredDevices": {
                    "b/nic": [], "nvidia.com/gpu": ["GPU-0", "GPU-1", "GPU-2"],
                },
            },
            // As Kubernetes 1.36 computes it.
            "Checksum": 2_288_425_840_u64,
        })
    );
    let restored = load(folder.path()).unwrap();
    assert_eq!(restored.allocations, allocations());
    assert_eq!(restored.resources, ["b/nic", "nvidia.com/gpu"]);
}

#[test]
fn a_file_without_entries_has_null_as_the_kubelet_s() {
    let folder = tempfile::tempdir().unwrap();
    save(folder.path(), &Allocations::default(), BTreeMap::new()).unwrap();
    let expected = json!({"PodDeviceEntries": null, "RegisteredDevices": {}});
    assert_eq!(content(folder.path())["Data"], expected);
    assert_eq!(content(folder.path())["Checksum"], 3_467_439_661_u64);
    assert_eq!(load(folder.path()).unwrap(), Restored::default());
}

#[test]
fn damage_is_found() {
    let folder = tempfile::tempdir().unwrap();
    save(folder.path(), &allocations(), healthy()).unwrap();
    let path = folder.path().join(FILE);
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("GPU-2", "GPU-3")).unwrap();
    assert!(matches!(load(folder.path()), Err(CheckpointError::Corrupt { .. })));
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert!(matches!(load(folder.path()), Err(CheckpointError::Read(_))));
}
