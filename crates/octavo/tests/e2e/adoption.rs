//! A node that NVIDIA's DRA driver served: the agent takes over its claims, and their pods keep running.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use octavo_lab::Component;
use octavo_testkit::nvidia_checkpoint;
use serde_json::{Value, json};

use crate::testbed::{Testbed, claim, eventually, files, pod};

const NODE: &str = "dgx-h100-0";
const PODS: usize = 8;

/// A claim as the file of NVIDIA's driver has it.
async fn prepared(testbed: &Testbed, name: &str) -> (String, Value) {
    let claim = testbed.claims().get(name).await.unwrap();
    let uid = claim.uid().unwrap();
    let result =
        claim.status.unwrap().allocation.unwrap().devices.unwrap().results.unwrap().remove(0);
    let device = testbed.device(NODE, &result.device).await.unwrap();
    let uuid = device.attributes.unwrap()["uuid"].string.clone().unwrap();
    let id = format!("k8s.gpu.nvidia.com/claim={uid}-{}", result.device);
    let kubelet = json!({
        "Requests": ["gpu"], "PoolName": NODE, "DeviceName": result.device, "CDIDeviceIDs": [id],
    });
    let given = json!({"gpu": {"info": {"uuid": uuid}, "device": kubelet}, "mig": null});
    let results = json!([{
        "request": "gpu", "driver": "gpu.nvidia.com", "pool": NODE, "device": result.device,
    }]);
    let entry = json!({
        "status": {"allocation": {"devices": {"results": results}}},
        "preparedDevices": [{"devices": [given], "configState": {"mpsControlDaemonID": ""}}],
    });
    (uid, entry)
}

/// Puts NVIDIA's file in the place of the agent's own.
fn leave(testbed: &Testbed, claims: &Value) {
    let folder = testbed.node(NODE).join("kubelet/plugins/gpu.nvidia.com");
    for file in files(&folder.join("checkpoint")) {
        fs::remove_file(file).unwrap();
    }
    fs::write(folder.join("checkpoint.json"), nvidia_checkpoint(claims)).unwrap();
    // Its specs have no record of the agent.
    for spec in files(&testbed.node(NODE).join("cdi")) {
        let text = fs::read_to_string(&spec).unwrap();
        if text.starts_with("# octavo-record") {
            fs::write(&spec, text.split_once('\n').unwrap().1).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_nvidia_s_driver_keep_their_gpus_and_their_containers() {
    let testbed = Testbed::up("dgx-h100=1").await;
    let names: Vec<String> = (0..PODS).map(|number| format!("train-{number}")).collect();
    for name in &names {
        testbed.create::<ResourceClaim>(claim(name, &json!([]))).await;
        testbed.create::<Pod>(pod(name, name)).await;
        testbed.wait_until_running(name).await;
    }
    let before: Vec<Pod> = testbed.pods().list(&ListParams::default()).await.unwrap().items;
    let mut claims = serde_json::Map::new();
    for name in &names {
        claims.extend([prepared(&testbed, name).await]);
    }
    testbed.lab.stop(Component::Agents).await;
    leave(&testbed, &claims.into());
    testbed.lab.start(Component::Agents).await.unwrap();
    let folder = testbed.node(NODE).join("kubelet/plugins/gpu.nvidia.com");
    eventually("the agent has taken the claims over", || async {
        let is_done = folder.join("checkpoint.json.adopted").exists();
        (is_done && files(&folder.join("checkpoint")).len() >= PODS).then_some(())
    })
    .await;

    // Every GPU is held: a ninth pod waits, and gets the GPU of one that ends.
    testbed.create::<ResourceClaim>(claim("ninth", &json!([]))).await;
    testbed.create::<Pod>(pod("ninth", "ninth")).await;
    testbed.wait_until_unschedulable("ninth").await;
    testbed.delete_pod(&names[3]).await;
    testbed.claims().delete(&names[3], &DeleteParams::default()).await.unwrap();
    testbed.wait_until_running("ninth").await;

    let after = testbed.pods();
    for pod in before.iter().filter(|pod| pod.name_any() != names[3]) {
        let now = after.get(&pod.name_any()).await.unwrap();
        assert_eq!(now.uid(), pod.uid());
        let status = |pod: &Pod| {
            let status = pod.status.clone().unwrap().container_statuses.unwrap().remove(0);
            (status.container_id, status.restart_count)
        };
        assert_eq!(status(&now), status(pod), "{}", pod.name_any());
        assert_eq!(status(&now).1, 0);
    }
}
