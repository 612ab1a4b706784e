//! GPUs that containers share in turns or by MPS, as claims and the device plugin's config ask for it.

use std::path::Path;
use std::process::{Child, Command};

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::real_node::{lock_real_nodes, log_of, shell_pod};
use crate::testbed::{OCTAVO, Testbed, claim, eventually};

const REAL: &str = "real-0";
const SIMULATED: &str = "gh200-0";
const RESOURCE: &str = "nvidia.com/gpu.shared";
/// NVML's number of the mode in which one process alone has contexts.
const EXCLUSIVE: u64 = 3;

/// What a client of an MPS daemon sees, and what it may not do.
const ASK_DAEMON: &str = "echo pipe=$CUDA_MPS_PIPE_DIRECTORY; ls $CUDA_MPS_PIPE_DIRECTORY; \
    uuid=$(nvidia-smi -L | sed 's/.*UUID: //; s/)//'); \
    echo get_default_active_thread_percentage | nvidia-cuda-mps-control; \
    echo get_default_device_pinned_mem_limit $uuid | nvidia-cuda-mps-control; \
    echo quit | nvidia-cuda-mps-control || echo cannot-quit; \
    df /dev/shm | tail -1";

fn config(sharing: &Value) -> Value {
    let parameters = json!({
        "apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", "sharing": sharing,
    });
    json!([{"requests": ["gpu"], "opaque": {"driver": "gpu.nvidia.com", "parameters": parameters}}])
}

fn by_mps() -> Value {
    let limits =
        json!({"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "2Gi"});
    config(&json!({"strategy": "MPS", "mpsConfig": limits}))
}

/// Values of the GPUs that have one other than 0, by what the simulated driver keeps of them.
fn values(testbed: &Testbed, node: &str, field: &str) -> Vec<u64> {
    let path = testbed.node(node).join("driver/usr/lib64/state.json");
    let state: Value = std::fs::read(path)
        .ok()
        .and_then(|it| serde_json::from_slice(&it).ok())
        .unwrap_or_default();
    let gpus = state["gpus"].as_object().into_iter().flatten();
    let values = gpus.filter_map(|(_, gpu)| gpu[field].as_u64());
    values.filter(|value| *value != 0).collect()
}

async fn wait_until(testbed: &Testbed, node: &str, field: &str, wanted: &[u64]) {
    eventually(&format!("{field} of the GPUs of {node} is {wanted:?}"), || async {
        (values(testbed, node, field) == wanted).then_some(())
    })
    .await;
}

async fn label(testbed: &Testbed, node: &str, labels: Value) {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    let patch = json!({"metadata": {"labels": labels}});
    nodes.patch(node, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
}

async fn wait_until_allocatable(testbed: &Testbed, node: &str, count: &str) {
    let nodes: Api<Node> = Api::all(testbed.client.clone());
    eventually(&format!("{node} has {count} of {RESOURCE}"), || async {
        let status = nodes.get(node).await.ok()?.status?;
        (status.allocatable?.get(RESOURCE)?.0 == count).then_some(())
    })
    .await;
}

/// A program that ends with the test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the MPS daemons of a simulated node.
fn run_daemons(node: &Path) -> Program {
    let folder = node.join("run/octavo/mps");
    let child = Command::new(OCTAVO)
        .args(["mps-daemon", "run", "--folder"])
        .arg(folder)
        .arg("--driver-root")
        .arg(node.join("driver"))
        .spawn();
    Program(child.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_waits_for_its_mps_daemon_and_frees_its_gpu_after_it() {
    let testbed = Testbed::up("gh200=1").await;
    testbed.pod_with_claim("mps", &by_mps()).await;
    testbed.wait_until_event("MpsNotReady", "agent.mps.enabled").await;
    assert_eq!(values(&testbed, SIMULATED, "computeMode"), Vec::<u64>::new());
    let node = testbed.node(SIMULATED);
    let program = run_daemons(&node);
    testbed.wait_until_running("mps").await;
    assert_eq!(values(&testbed, SIMULATED, "computeMode"), [EXCLUSIVE]);
    let check =
        ["mps-daemon", "check", "--folder", &node.join("run/octavo/mps").display().to_string()]
            .map(str::to_owned);
    testbed.octavo_ok(&check.each_ref().map(String::as_str));
    testbed.delete_pod("mps").await;
    wait_until(&testbed, SIMULATED, "computeMode", &[]).await;
    // The program ends under a claim: the GPU is freed all the same.
    testbed.create::<Pod>(crate::testbed::pod("again", "mps")).await;
    testbed.wait_until_running("again").await;
    drop(program);
    testbed.delete_pod("again").await;
    wait_until(&testbed, SIMULATED, "computeMode", &[]).await;
    let names = std::fs::read_dir(node.join("run/octavo/mps")).unwrap();
    let folders = names.filter(|entry| entry.as_ref().unwrap().path().is_dir());
    assert_eq!(folders.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_on_a_real_node_share_gpus_in_turns_and_by_mps() {
    let Some(_guard) = lock_real_nodes().await else { return };
    let testbed = Testbed::up_real("1:dgx-h100").await;
    eventually("the node publishes", || testbed.device(REAL, "gpu-0")).await;

    let long = config(&json!({
        "strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"},
    }));
    testbed.create::<ResourceClaim>(claim("turns", &long)).await;
    testbed.create::<ResourceClaim>(claim("mps", &by_mps())).await;
    log_of(&testbed, shell_pod("turns", REAL, "true", &["turns"])).await;
    assert_eq!(values(&testbed, REAL, "timeSlice"), [3]);
    let log = log_of(&testbed, shell_pod("mps", REAL, ASK_DAEMON, &["mps"])).await;
    for line in ["pipe=/tmp/nvidia-mps", "control", "50.0", "2G", "cannot-quit"] {
        assert!(log.lines().any(|it| it == line), "{line}: {log}");
    }
    assert!(!log.contains("control_privileged"), "{log}");
    assert!(log.contains("shm"), "its shared memory is the daemon's: {log}");
    assert_eq!(values(&testbed, REAL, "computeMode"), [EXCLUSIVE]);
    testbed.delete_pod("turns").await;
    testbed.delete_pod("mps").await;
    wait_until(&testbed, REAL, "timeSlice", &[]).await;
    wait_until(&testbed, REAL, "computeMode", &[]).await;

    share_by_plugin(&testbed).await;
    wait_until_allocatable(&testbed, REAL, "32").await;
    assert_eq!(values(&testbed, REAL, "computeMode"), [EXCLUSIVE; 8]);
    let mut pod = shell_pod("counted", REAL, ASK_DAEMON, &[]);
    pod["spec"]["containers"][0]["resources"] = json!({"limits": {RESOURCE: "1"}});
    let log = log_of(&testbed, pod).await;
    let pipe = format!("pipe=/mps/{RESOURCE}/pipe");
    for line in [pipe.as_str(), "control", "25.0", "20389M", "cannot-quit"] {
        assert!(log.lines().any(|it| it == line), "{line}: {log}");
    }

    // Back to claims: the daemon ends after the last pod, and the GPUs are shared again before a claim gets one.
    label(&testbed, REAL, json!({"octavo.dev/mode": null})).await;
    wait_until_allocatable(&testbed, REAL, "0").await;
    assert_eq!(values(&testbed, REAL, "computeMode"), [EXCLUSIVE; 8]);
    testbed.delete_pod("counted").await;
    eventually("the node publishes again", || testbed.device(REAL, "gpu-0")).await;
    assert_eq!(values(&testbed, REAL, "computeMode"), Vec::<u64>::new());
}

/// Makes the node one of the device plugin, with four replicas of each GPU under MPS.
async fn share_by_plugin(testbed: &Testbed) {
    let maps: Api<ConfigMap> = Api::namespaced(testbed.client.clone(), "octavo-system");
    let map = maps.get("octavo-agent").await.unwrap();
    let agent = map.data.unwrap()["agent.yaml"].clone();
    let agent =
        format!("{agent}\ndevicePlugin: {{configFolder: /etc/octavo, defaultConfig: mps}}\n");
    let plugin = "version: v1\nsharing: {mps: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n";
    let patch = json!({"data": {"agent.yaml": agent, "mps": plugin}});
    maps.patch("octavo-agent", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    label(testbed, REAL, json!({"octavo.dev/mode": "device-plugin"})).await;
    let pods: Api<Pod> = Api::namespaced(testbed.client.clone(), "octavo-system");
    let agents = ListParams::default().labels("app.kubernetes.io/component=agent");
    for pod in pods.list(&agents).await.unwrap().items {
        let name = pod.metadata.name.unwrap();
        pods.delete(&name, &DeleteParams::default()).await.unwrap();
    }
}
