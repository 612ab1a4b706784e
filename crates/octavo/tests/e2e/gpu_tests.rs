//! GPUs are tested on the simulated driver before they return: the agent starts `octavo probe verify`.

use kube::Api;
use kube::api::PostParams;
use octavo_api::node_health::DeviceHealth;
use octavo_api::{HealthPolicy, NodeHealth};
use octavo_lab::{Component, UpOptions};
use serde_json::json;

use crate::testbed::{OCTAVO, Testbed, eventually};

const NODE: &str = "l4-0";

/// A node with four GPUs, which are reset and tested for two seconds.
async fn lab() -> Testbed {
    let testbed = Testbed::up_with(|state| UpOptions {
        nodes: Some("l4=1".parse().unwrap()),
        controller: Some(true),
        ..UpOptions::new(state, OCTAVO)
    })
    .await;
    let policies: Api<HealthPolicy> = Api::all(testbed.client.clone());
    let policy = serde_json::from_value(json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy", "metadata": {"name": "act"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": NODE}, "mode": "Act",
            "remedies": ["resetFunction", "resetBus"], "times": {"shortTestSeconds": 2},
        },
    }));
    policies.create(&PostParams::default(), &policy.unwrap()).await.unwrap();
    testbed
}

async fn until(testbed: &Testbed, index: usize, state: &str) -> DeviceHealth {
    let healths: Api<NodeHealth> = Api::all(testbed.client.clone());
    eventually(&format!("GPU {index} is {state}"), || async {
        let status = healths.get(NODE).await.ok()?.status?;
        let device = status.devices.into_iter().nth(index)?;
        (device.state == state).then_some(device)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_that_computes_wrong_passes_no_test_and_is_retired_and_its_neighbour_returns() {
    let testbed = lab().await;
    until(&testbed, 3, "Healthy").await;
    // The driver has nothing against it after a reset.
    testbed.octavo_ok(&["lab", "gpu", NODE, "1", "set", "--faulty-multiprocessors", "3"]);
    testbed.octavo_ok(&["lab", "gpu", NODE, "1", "fail", "--xid", "95"]);
    let retired = until(&testbed, 1, "Retired").await;
    assert_eq!(
        (retired.reason.as_deref(), retired.attempt),
        (Some("TestFailed"), 2),
        "both resets"
    );
    let message = retired.message.unwrap();
    assert!(message.contains("compute: ") && message.contains("wrong"), "{message}");
    let shown = testbed.octavo_ok(&["health", "describe", &format!("{NODE}/gpu-1")]);
    assert!(shown.contains("compute: "), "{shown}");

    testbed.octavo_ok(&["lab", "gpu", NODE, "2", "fail", "--xid", "95"]);
    let back = until(&testbed, 2, "Probation").await;
    assert_eq!(back.attempt, 3, "one reset, with its test");
    until(&testbed, 1, "Retired").await;
}

/// Nothing is known of a GPU that the program cannot test, so it neither returns nor is reset again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gpu_that_cannot_be_tested_waits_says_why_and_outlives_the_agent() {
    let testbed = lab().await;
    until(&testbed, 3, "Healthy").await;
    let library = testbed.node(NODE).join("driver/usr/lib64/libcuda.so.1");
    let aside = library.with_extension("aside");
    std::fs::rename(&library, &aside).unwrap();
    testbed.octavo_ok(&["lab", "gpu", NODE, "0", "fail", "--xid", "95"]);
    let healths: Api<NodeHealth> = Api::all(testbed.client.clone());
    let waiting = eventually("its test could not be tried", || async {
        let status = healths.get(NODE).await.ok()?.status?;
        let device = status.devices.into_iter().next()?;
        (device.waits.as_deref() == Some("TestNotPossible")).then_some(device)
    })
    .await;
    assert_eq!(waiting.state, "Fenced");
    assert!(waiting.message.as_ref().unwrap().contains("libcuda.so.1"), "{waiting:?}");
    testbed.lab.kill(Component::Agents).await;
    std::fs::rename(&aside, &library).unwrap();
    testbed.lab.start(Component::Agents).await.unwrap();
    let back = until(&testbed, 0, "Probation").await;
    assert!(back.attempt > waiting.attempt, "{back:?}");
}
