//! Dynamic MIG: placements are published, and instances follow the claims.

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use octavo_lab::DynamicMig;
use serde_json::{Value, json};

use crate::testbed::{Testbed, eventually, pod};

const NODE: &str = "dgx-h100-0";

/// A claim for MIG devices of these profiles on one GPU.
pub(crate) fn mig_claim(name: &str, profiles: &[&str]) -> Value {
    let request = |(index, profile): (usize, &&str)| {
        let expression = format!("device.attributes['gpu.nvidia.com'].profile == '{profile}'");
        json!({
            "name": format!("mig-{index}"),
            "exactly": {
                "deviceClassName": "mig.nvidia.com",
                "selectors": [{"cel": {"expression": expression}}],
            },
        })
    };
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {
            "requests": profiles.iter().enumerate().map(request).collect::<Vec<_>>(),
            "constraints": [{"matchAttribute": "gpu.nvidia.com/parentUUID"}],
        }},
    })
}

async fn pod_with_mig(testbed: &Testbed, name: &str, profiles: &[&str]) {
    testbed.create::<ResourceClaim>(mig_claim(name, profiles)).await;
    testbed.create::<Pod>(pod(name, name)).await;
}

/// Opts GPUs of the node in, like an administrator, and waits for their placements.
pub(crate) async fn opt_in(testbed: &Testbed, node: &str, gpus: &str) {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let label = json!({"metadata": {"labels": {"octavo.dev/dynamic-mig": gpus}}});
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(&label)).await.unwrap();
    let last = gpus.rsplit('_').next().filter(|gpu| *gpu != "all").unwrap_or("7");
    let last = format!("gpu-{last}-mig-1g10gb-19-0");
    eventually("MIG placements are published", || testbed.device(node, &last)).await;
}

/// The MIG devices allocated to a claim, with the UUIDs reported by the agent.
async fn wait_for_mig_devices(
    testbed: &Testbed,
    claim: &str,
    count: usize,
) -> Vec<(String, String)> {
    eventually(&format!("the UUIDs of {claim}'s MIG devices"), || async {
        let claim = serde_json::to_value(testbed.claims().get(claim).await.ok()?).unwrap();
        let devices = claim["status"]["devices"].as_array()?;
        let devices: Option<Vec<_>> = devices
            .iter()
            .map(|device| {
                let uuid = device["data"]["uuid"].as_str()?.to_owned();
                Some((device["device"].as_str()?.to_owned(), uuid))
            })
            .collect();
        devices.filter(|devices| devices.len() == count)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_mig_devices_of_one_parent_are_made_and_gone_again() {
    let testbed = Testbed::up("dgx-h100=1").await;
    opt_in(&testbed, NODE, "6_7").await;
    pod_with_mig(&testbed, "four", &["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"]).await;
    let pod = testbed.wait_until_running("four").await;
    let devices = wait_for_mig_devices(&testbed, "four", 4).await;
    let parents: Vec<&str> = devices.iter().map(|(device, _)| &device[..6]).collect();
    assert!(parents.iter().all(|parent| *parent == parents[0]), "{devices:?}");
    assert!(devices.iter().all(|(_, uuid)| uuid.starts_with("MIG-")), "{devices:?}");
    let container = testbed.container(NODE, &pod, "main");
    assert_eq!(container.device_nodes("/dev/nvidia-caps/"), 8, "two for each: {container:?}");

    // A whole GPU is still available, but not the partitioned one.
    testbed.pod_with_claim("whole", &json!([])).await;
    testbed.wait_until_running("whole").await;
    let top: Value =
        serde_json::from_str(&testbed.octavo_ok(&["top", "--output", "json"])).unwrap();
    let cut = top["gpus"].as_array().unwrap().iter().filter(|gpu| gpu["state"] == "partitioned");
    assert_eq!(cut.count(), 1, "{top}");
    let uuids = top["gpus"].as_array().unwrap().iter().filter_map(|gpu| gpu["uuid"].as_str());
    assert_eq!(uuids.filter(|uuid| uuid.starts_with("MIG-")).count(), 4, "{top}");

    testbed.delete_pod("four").await;
    testbed.delete_pod("whole").await;
    eventually("no file is left", || async { testbed.node_files(NODE).is_empty().then_some(()) })
        .await;
    assert_eq!(testbed.mig_instances(NODE), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_whose_minor_number_moves_keeps_its_name_and_serves_its_claims() {
    let testbed = Testbed::up("dgx-h100=1").await;
    opt_in(&testbed, NODE, "7").await;
    let next_minor = |number: &str| {
        testbed.octavo_ok(&["lab", "gpu", NODE, "7", "set", "--next-minor", number]);
    };
    // Mode on: 9. Mode off: 12. On again: 13.
    for (pod, on, off) in [("first", "9", "12"), ("second", "13", "14")] {
        next_minor(on);
        pod_with_mig(&testbed, pod, &["1g.10gb"]).await;
        let running = testbed.wait_until_running(pod).await;
        let (device, _) = wait_for_mig_devices(&testbed, pod, 1).await.remove(0);
        assert!(device.starts_with("gpu-7-mig-"), "{device}");
        let gpus = testbed.container(NODE, &running, "main").gpus();
        assert_eq!(gpus, [format!("/dev/nvidia{on}")], "{pod}");
        next_minor(off);
        testbed.delete_pod(pod).await;
        testbed.claims().delete(pod, &DeleteParams::default()).await.unwrap();
        eventually("no instance is left", || async {
            (testbed.mig_instances(NODE) == 0).then_some(())
        })
        .await;
    }
    assert!(testbed.device(NODE, "gpu-7").await.is_some(), "its name stays");
    eventually("no file is left", || async { testbed.node_files(NODE).is_empty().then_some(()) })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn freed_slices_grow_into_another_profile_beside_their_neighbours() {
    let testbed = Testbed::up("dgx-h100=1").await;
    opt_in(&testbed, NODE, "7").await;
    // Seven small instances fill the GPU.
    let names: Vec<String> = (0..7).map(|index| format!("small-{index}")).collect();
    let mut uuids = Vec::new();
    for name in &names {
        pod_with_mig(&testbed, name, &["1g.10gb"]).await;
    }
    for name in &names {
        testbed.wait_until_running(name).await;
        uuids.push(wait_for_mig_devices(&testbed, name, 1).await.remove(0));
    }
    pod_with_mig(&testbed, "grown", &["2g.20gb"]).await;
    testbed.wait_until_unschedulable("grown").await;
    // Two neighbouring instances are removed, and one of twice the size takes their place.
    let pair: Vec<usize> = (0..7)
        .filter(|index| {
            let start = &uuids[*index].0;
            start.ends_with("-19-2") || start.ends_with("-19-3")
        })
        .collect();
    assert_eq!(pair.len(), 2, "{uuids:?}");
    for index in &pair {
        testbed.delete_pod(&names[*index]).await;
        testbed.claims().delete(&names[*index], &DeleteParams::default()).await.unwrap();
    }
    testbed.wait_until_running("grown").await;
    let grown = wait_for_mig_devices(&testbed, "grown", 1).await.remove(0);
    assert_eq!(grown.0, "gpu-7-mig-2g20gb-14-2");
    for index in (0..7).filter(|index| !pair.contains(index)) {
        assert_eq!(
            wait_for_mig_devices(&testbed, &names[index], 1).await.remove(0),
            uuids[index],
            "neighbours keep what they have"
        );
    }
    assert_eq!(testbed.mig_instances(NODE), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_gpus_shares_and_mig_devices_mix_on_one_node() {
    let testbed = Testbed::up_with_mig("dgx-h100=1", DynamicMig::All).await;
    pod_with_mig(&testbed, "mig", &["1g.10gb"]).await;
    testbed.create::<ResourceClaim>(json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "share"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
            "deviceClassName": "gpu.nvidia.com",
            "capacity": {"requests": {"memory": "20Gi", "compute": "25"}},
        }}]}},
    }))
    .await;
    testbed.create::<Pod>(pod("share", "share")).await;
    testbed.pod_with_claim("whole", &json!([])).await;
    let mut gpus = Vec::new();
    for name in ["mig", "share", "whole"] {
        let pod = testbed.wait_until_running(name).await;
        gpus.extend(testbed.container(NODE, &pod, "main").gpus());
    }
    gpus.sort();
    gpus.dedup();
    assert_eq!(gpus.len(), 3, "three GPUs: one cut, one shared, one whole: {gpus:?}");
}
