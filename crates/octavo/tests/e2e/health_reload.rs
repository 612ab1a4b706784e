//! The reload of the driver as a remedy: the agent unloads the modules of its node and loads them again.

use kube::Api;
use kube::api::PostParams;
use octavo_api::{HealthPolicy, NodeHealth};
use octavo_lab::UpOptions;
use octavo_machine::{RecoveryAction, State};
use serde_json::json;

use crate::health::parsed;
use crate::testbed::{OCTAVO, Testbed, eventually};

const NODE: &str = "dgx-h100-0";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_of_the_driver_brings_a_gpu_back_or_its_ladder_ends() {
    let testbed = Testbed::up_with(|state| UpOptions {
        nodes: Some("dgx-h100=1".parse().unwrap()),
        controller: Some(true),
        ..UpOptions::new(state, OCTAVO)
    })
    .await;
    let healths: Api<NodeHealth> = Api::all(testbed.client.clone());
    let state = async |index: usize, wanted: &str| {
        eventually(&format!("GPU {index} is {wanted}"), || async {
            let status = healths.get(NODE).await.ok()?.status?;
            status.devices.into_iter().nth(index).filter(|device| device.state == wanted)
        })
        .await
    };
    let machine = || {
        let file = testbed.node(NODE).join("driver/usr/lib64/state.json");
        State::read(&file).unwrap()
    };
    let modules = || std::fs::read_to_string(testbed.node(NODE).join("proc/modules")).unwrap();
    let loaded = modules();
    assert!(loaded.contains("nvidia_uvm "), "{loaded}");
    state(7, "Healthy").await;

    let policies: Api<HealthPolicy> = Api::all(testbed.client.clone());
    let policy = json!({
        "apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy", "metadata": {"name": "reload"},
        "spec": {"nodeSelector": {"kubernetes.io/hostname": NODE}, "mode": "Act",
            "remedies": ["reloadDriver"], "times": {"nodeTestSeconds": 2}},
    });
    policies.create(&PostParams::default(), &parsed(&policy)).await.unwrap();
    // Another GPU, which is well, shows that the driver of the whole node began again.
    testbed.octavo_ok(&["lab", "gpu", NODE, "1", "fail", "--ecc", "corrected=7"]);
    testbed.octavo_ok(&["lab", "gpu", NODE, "3", "fail", "--recovery-action", "reset"]);
    let back = state(3, "Probation").await;
    assert_eq!((back.attempt, back.needs), (1, None), "one reload, with its test");
    let now = machine();
    assert_eq!(now.gpus[&3].recovery_action, RecoveryAction::None);
    assert_eq!(now.gpus[&3].reset.begun, 0, "it was not reset");
    let errors = now.gpus[&1].ecc;
    assert_eq!((errors.volatile_corrected, errors.aggregate_corrected), (0, 7));
    assert_eq!(modules(), loaded);

    // A pod with a GPU is in the way. Without it the reload begins, and mends nothing.
    testbed.pod_with_claim("holder", &json!([])).await;
    testbed.wait_until_running("holder").await;
    testbed.octavo_ok(&["lab", "gpu", NODE, "5", "set", "--reset-in-vain", "true"]);
    testbed.octavo_ok(&["lab", "gpu", NODE, "5", "fail", "--recovery-action", "reset"]);
    let waiting = state(5, "Fenced").await;
    assert_eq!(serde_json::to_value(waiting.needs).unwrap(), "reloadDriver");
    assert!(matches!(waiting.waits.as_deref(), Some("Permit" | "Clients")), "{waiting:?}");
    testbed.delete_pod("holder").await;
    state(5, "Retired").await;
    assert_eq!(modules(), loaded);
}
