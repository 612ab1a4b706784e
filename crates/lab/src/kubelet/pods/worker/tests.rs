use std::path::Path;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::kubelet::fake_api::{FakeApi, TEST_TIMEOUT};
use crate::kubelet::fake_plugin::FakePlugin;
use crate::kubelet::plugins::registrar::Registrar;
use crate::kubelet::pod_addresses::PodAddresses;
use crate::kubelet::pods::processes::ProcessHost;

const CLAIM: &str = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/shared";
const SPEC: &str = r#"{"cdiVersion": "0.7.0", "kind": "k8s.gpu.nvidia.com/claim", "devices": [
    {"name": "claim-uid-gpu-0", "containerEdits": {"env": ["GPU=0"]}}]}"#;

/// A node with a registered plugin, and an API server with one claim of two pods.
struct Fixture {
    folder: tempfile::TempDir,
    api: FakeApi,
    plugin: FakePlugin,
    node: Arc<Node>,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let api = FakeApi::default();
        let consumers = ["one", "two"]
            .map(|name| json!({"resource": "pods", "name": name, "uid": format!("{name}-uid")}));
        let results = json!([
            {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"}
        ]);
        api.put(
            CLAIM,
            json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": "shared", "namespace": "ns", "uid": "claim-uid"},
                "spec": {},
                "status": {"reservedFor": consumers, "allocation": {"devices": {"results": results}}},
            }),
        );
        let node = open(folder.path(), &api);
        std::fs::write(node.cdi().join("claim.json"), SPEC).unwrap();
        let plugin = FakePlugin::start(&node.plugins_registry(), "gpu.nvidia.com");
        register_plugins(&node).await;
        Self { folder, api, plugin, node }
    }

    /// Creates a pod on the node that uses the claim.
    fn pod(&self, name: &str, policy: &str, annotations: &Value) -> String {
        let path = path_of(name);
        self.api.put(
            &path,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": name, "namespace": "ns", "uid": format!("{name}-uid"),
                    "annotations": annotations,
                },
                "spec": {
                    "nodeName": "node", "restartPolicy": policy,
                    "resourceClaims": [{"name": "gpus", "resourceClaimName": "shared"}],
                    "containers": [
                        {"name": "main", "resources": {"claims": [{"name": "gpus", "request": "gpu"}]}},
                        {"name": "side"},
                    ],
                },
                "status": {"phase": "Pending"},
            }),
        );
        let (node, latest) = (Arc::clone(&self.node), self.api.follow(&path));
        tokio::spawn(async move {
            let shutdown = node.shutdown.clone();
            shutdown.run_until_cancelled(run_pod(node, latest)).await;
        });
        path
    }

    fn delete(&self, path: &str) {
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        self.api.merge(path, &deleted);
    }

    async fn wait_for_phase(&self, path: &str, phase: &str) {
        self.api
            .wait_until(path, |pod| pod.is_some_and(|pod| pod["status"]["phase"] == phase))
            .await;
    }

    async fn wait_until_gone(&self, path: &str) {
        self.api.wait_until(path, |pod| pod.is_none()).await;
    }

    /// Waits until calls go to the instance with this socket.
    async fn wait_until_called_instance_is(&self, socket: &Path) {
        let is_called = async {
            while self.node.plugins.get("gpu.nvidia.com").unwrap().socket != socket {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, is_called).await.unwrap();
    }

    fn container(&self, pod: &str, name: &str) -> Value {
        let path = self.node.pod_folder(&format!("{pod}-uid")).join(format!("{name}.json"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }
}

fn path_of(name: &str) -> String {
    format!("/api/v1/namespaces/ns/pods/{name}")
}

fn open(folder: &Path, api: &FakeApi) -> Arc<Node> {
    let addresses = Arc::new(PodAddresses::default());
    let host = Arc::new(ProcessHost::new(folder).unwrap());
    let token = CancellationToken::new();
    let node = Node::open(folder.join("node"), 0, api.client(), (addresses, host), token).unwrap();
    Arc::new(node)
}

/// Registers the plugins of `node` through their sockets, as in production.
async fn register_plugins(node: &Arc<Node>) {
    let mut changes = node.plugins.changes();
    let tasks = TaskTracker::new();
    let retry = Duration::from_millis(10);
    let registrar = Registrar::new(vec![Arc::clone(node)], tasks.clone(), retry).unwrap();
    tasks.spawn(registrar.run(node.shutdown.clone()));
    let registered = async {
        while node.plugins.get("gpu.nvidia.com").is_err() {
            changes.changed().await.unwrap();
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, registered).await.unwrap();
}

#[tokio::test]
async fn shared_claim_is_prepared_once_and_unprepared_after_the_last_pod() {
    let fixture = Fixture::new().await;
    let (one, two) =
        (fixture.pod("one", "Always", &json!({})), fixture.pod("two", "Always", &json!({})));
    fixture.wait_for_phase(&one, "Running").await;
    fixture.wait_for_phase(&two, "Running").await;
    assert_eq!(fixture.plugin.calls(), ["prepare claim-uid"]);
    assert_eq!(fixture.container("one", "main")["env"], json!(["GPU=0"]));
    assert_eq!(fixture.container("one", "side")["cdiDevices"], json!([]));

    fixture.delete(&one);
    fixture.wait_until_gone(&one).await;
    assert_eq!(fixture.plugin.calls(), ["prepare claim-uid"]);
    fixture.delete(&two);
    fixture.wait_until_gone(&two).await;
    assert_eq!(fixture.plugin.calls(), ["prepare claim-uid", "unprepare claim-uid"]);
    assert!(!fixture.node.pod_folder("two-uid").exists());
}

#[tokio::test]
async fn a_status_that_met_a_conflict_is_written_again() {
    let fixture = Fixture::new().await;
    fixture.api.fail_with_conflicts(2);
    let pod = fixture.pod("one", "Always", &json!({}));
    fixture.wait_for_phase(&pod, "Running").await;
}

#[tokio::test]
async fn failing_prepare_is_reported_and_retried() {
    let fixture = Fixture::new().await;
    fixture.plugin.fail(Some("the GPU is lost"));
    let pod = fixture.pod("one", "Always", &json!({}));
    let reason = "/status/containerStatuses/0/state/waiting/reason";
    fixture
        .api
        .wait_until(&pod, |pod| {
            pod.and_then(|pod| pod.pointer(reason)) == Some(&json!("ContainerCreating"))
        })
        .await;
    fixture.api.wait_until_created(1).await;
    let event = fixture.api.created()[0].clone();
    assert_eq!(event["reason"], "FailedPrepareDynamicResources");
    assert_eq!(
        event["note"],
        "Failed to prepare dynamic resources: NodePrepareResources failed for ResourceClaim \
         shared: the GPU is lost"
    );
    fixture.plugin.fail(None);
    fixture.wait_for_phase(&pod, "Running").await;
}

#[tokio::test]
async fn undefined_cdi_device_keeps_the_container_from_being_created() {
    let fixture = Fixture::new().await;
    let spec = fixture.node.cdi().join("claim.json");
    std::fs::remove_file(&spec).unwrap();
    let pod = fixture.pod("one", "Always", &json!({}));
    let waiting = "/status/containerStatuses/0/state/waiting";
    fixture
        .api
        .wait_until(&pod, |pod| {
            let waiting = pod.and_then(|pod| pod.pointer(waiting)).cloned().unwrap_or_default();
            let message = waiting["message"].as_str().unwrap_or_default();
            waiting["reason"] == "CreateContainerError"
                && message.contains("unresolvable CDI devices")
        })
        .await;
    std::fs::write(&spec, SPEC).unwrap();
    fixture.wait_for_phase(&pod, "Running").await;
}

#[tokio::test]
async fn a_pod_that_is_done_has_its_claims_unprepared_before_it_says_so() {
    let fixture = Fixture::new().await;
    for (name, code, phase) in [("one", "0", "Succeeded"), ("two", "3", "Failed")] {
        let plan = json!({"lab.octavo.dev/run-for": "1ms", "lab.octavo.dev/exit-code": code});
        let pod = fixture.pod(name, "Never", &plan);
        fixture.wait_for_phase(&pod, phase).await;
        assert_eq!(fixture.plugin.calls().last().unwrap(), "unprepare claim-uid");
        fixture.delete(&pod);
        fixture.wait_until_gone(&pod).await;
    }
}

#[tokio::test]
async fn health_of_a_pods_devices_shows_in_its_status() {
    let fixture = Fixture::new().await;
    let pod = fixture.pod("one", "Always", &json!({}));
    fixture.wait_for_phase(&pod, "Running").await;
    fixture.plugin.report_health(crate::kubelet::plugins::health::Health::Unhealthy);
    let health = "/status/containerStatuses/0/allocatedResourcesStatus/0";
    fixture
        .api
        .wait_until(&pod, |pod| {
            let status = pod.and_then(|pod| pod.pointer(health)).cloned().unwrap_or_default();
            status["name"] == "claim:gpus/gpu" && status["resources"][0]["health"] == "Unhealthy"
        })
        .await;
}

#[tokio::test]
async fn restart_prepares_living_pods_again_and_releases_vanished_ones() {
    let fixture = Fixture::new().await;
    let one = fixture.pod("one", "Always", &json!({}));
    fixture.wait_for_phase(&one, "Running").await;
    fixture.node.shutdown.cancel();

    let restarted = open(fixture.folder.path(), &fixture.api);
    assert_eq!(restarted.claim_infos().claim_keys_of("one-uid").len(), 1);
    register_plugins(&restarted).await;
    let again = run_pod(Arc::clone(&restarted), fixture.api.follow(&one));
    let again = tokio::spawn(again);
    let prepared = ["prepare claim-uid", "prepare claim-uid"];
    fixture.plugin.wait_until_called(2).await;
    assert_eq!(fixture.plugin.calls(), prepared);
    again.abort();

    fixture.api.remove(&one);
    let orphans = restarted.claim_infos().orphans(&std::collections::BTreeSet::new());
    for uid in orphans {
        release_orphan(Arc::clone(&restarted), uid).await;
    }
    assert_eq!(fixture.plugin.calls().last().unwrap(), "unprepare claim-uid");
    assert!(restarted.claim_infos().claim_keys_of("one-uid").is_empty());
}

#[tokio::test]
async fn newest_plugin_instance_is_called_until_it_dies() {
    let fixture = Fixture::new().await;
    let registry = fixture.node.plugins_registry();
    let newer = FakePlugin::start_instance(&registry, "gpu.nvidia.com", "newer");
    assert_eq!(newer.wait_for_notification().await, (true, String::new()));
    // As in the kubelet, an instance is called only once it has a connection.
    fixture.wait_until_called_instance_is(&newer.registration_socket()).await;
    let one = fixture.pod("one", "Always", &json!({}));
    fixture.wait_for_phase(&one, "Running").await;
    assert_eq!(newer.calls(), ["prepare claim-uid"]);
    assert_eq!(fixture.plugin.calls(), [""; 0]);

    // A killed process leaves its socket file.
    let socket = newer.registration_socket();
    newer.kill();
    fixture.wait_until_called_instance_is(&fixture.plugin.registration_socket()).await;
    assert!(socket.exists());
    fixture.delete(&one);
    fixture.wait_until_gone(&one).await;
    assert_eq!(fixture.plugin.calls(), ["unprepare claim-uid"]);
}

#[tokio::test]
async fn missing_mount_source_keeps_the_container_from_starting() {
    let fixture = Fixture::new().await;
    let share = fixture.folder.path().join("shares/share-1");
    let spec = json!({
        "cdiVersion": "0.7.0", "kind": "k8s.gpu.nvidia.com/claim", "devices": [{
            "name": "claim-uid-gpu-0", "containerEdits": {"mounts": [
                {"hostPath": share, "containerPath": "/run/octavo/shares/share-1", "options": ["ro", "bind"]},
                {"hostPath": "tmpfs", "containerPath": "/scratch", "type": "tmpfs"},
            ]},
        }],
    });
    std::fs::write(fixture.node.cdi().join("claim.json"), spec.to_string()).unwrap();
    let pod = fixture.pod("one", "Always", &json!({}));
    let waiting = "/status/containerStatuses/0/state/waiting";
    fixture
        .api
        .wait_until(&pod, |pod| {
            let waiting = pod.and_then(|pod| pod.pointer(waiting)).cloned().unwrap_or_default();
            let message = waiting["message"].as_str().unwrap_or_default();
            waiting["reason"] == "RunContainerError"
                && message.contains("error mounting")
                && message.contains("/shares/share-1: no such file or directory")
        })
        .await;
    std::fs::create_dir_all(&share).unwrap();
    fixture.wait_for_phase(&pod, "Running").await;
    let container = fixture.container("one", "main");
    assert_eq!(container["mounts"][0]["hostPath"], json!(share));
    assert_eq!(container["mounts"][0]["containerPath"], "/run/octavo/shares/share-1");
}

#[tokio::test]
async fn container_record_lists_devices_with_share_ids() {
    let fixture = Fixture::new().await;
    let pod = fixture.pod("one", "Always", &json!({}));
    fixture.wait_for_phase(&pod, "Running").await;
    assert_eq!(
        fixture.container("one", "main")["dynamicResources"],
        json!([{"claimName": "shared", "claimNamespace": "ns", "claimResources": [{
            "driverName": "gpu.nvidia.com", "poolName": "n", "deviceName": "gpu-0",
            "shareId": "share-1", "cdiDevices": ["k8s.gpu.nvidia.com/claim=claim-uid-gpu-0"],
        }]}])
    );
    assert_eq!(fixture.container("one", "side")["dynamicResources"], json!([]));
}
