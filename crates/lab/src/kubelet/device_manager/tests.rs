use std::sync::Arc;

use octavo_kubelet_api::pod_resources::v1::pod_resources_lister_client::PodResourcesListerClient;
use octavo_kubelet_api::pod_resources::v1::{
    AllocatableResourcesRequest, ContainerDevices, GetPodResourcesRequest, ListPodResourcesRequest,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Endpoint;

use super::fake_device_plugin::{FakeDevicePlugin, device, register};
use super::resources::Count;
use super::*;
use crate::kubelet::fake_api::{FakeApi, TEST_TIMEOUT};
use crate::kubelet::node::Node;
use crate::kubelet::pod_addresses::PodAddresses;
use crate::kubelet::pods::processes::ProcessHost;
use crate::kubelet::pods::worker::{release_orphan, run_pod};

const GPU: &str = "example.com/gpu";

/// A node whose device manager serves.
struct Fixture {
    folder: tempfile::TempDir,
    api: FakeApi,
    node: Arc<Node>,
}

impl Fixture {
    fn new() -> Self {
        let (folder, api) = (tempfile::tempdir().unwrap(), FakeApi::default());
        let node = open(folder.path(), &api);
        let devices: Vec<Value> = (0..8)
            .map(|number| json!({"name": number.to_string(), "containerEdits": {}}))
            .collect();
        let spec = json!({"cdiVersion": "0.7.0", "kind": GPU, "devices": devices});
        std::fs::write(node.cdi().join("gpus.json"), spec.to_string()).unwrap();
        Self { folder, api, node }
    }

    /// Starts the kubelet again, with the state that is on disk.
    fn restart(&mut self) {
        self.node.shutdown.cancel();
        self.node = open(self.folder.path(), &self.api);
    }

    fn plugins(&self) -> PathBuf {
        self.folder.path().join("node/kubelet/device-plugins")
    }

    /// A plugin with devices 0 to `count - 1`, which are listed.
    async fn plugin(&self, count: usize) -> FakeDevicePlugin {
        let devices = (0..count).map(|id| device(&id.to_string(), true, None)).collect();
        let plugin = FakeDevicePlugin::start(&self.plugins(), GPU, devices, true).await;
        self.wait_for_count(count, count).await;
        plugin
    }

    async fn wait_for_count(&self, capacity: usize, allocatable: usize) {
        let wanted = Count { capacity, allocatable };
        let mut counts = self.node.devices.counts();
        let is_so = counts.wait_for(|counts| counts.get(GPU) == Some(&wanted));
        let is_so = tokio::time::timeout(TEST_TIMEOUT, is_so).await.is_ok();
        assert!(is_so, "{:?}", self.node.devices.counts().borrow());
    }

    /// Creates a pod and runs it on the node.
    fn pod(&self, name: &str, spec: &Value) -> String {
        let path = path_of(name);
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "uid": format!("{name}-uid")},
            "spec": spec, "status": {"phase": "Pending"},
        });
        pod["spec"]["nodeName"] = "node".into();
        self.api.put(&path, pod);
        self.run(name);
        path
    }

    /// Runs a pod on the node.
    fn run(&self, name: &str) {
        let (node, latest) = (Arc::clone(&self.node), self.api.follow(&path_of(name)));
        tokio::spawn(async move {
            let shutdown = node.shutdown.clone();
            shutdown.run_until_cancelled(run_pod(node, latest)).await;
        });
    }

    async fn wait_for_phase(&self, path: &str, phase: &str) {
        let is_so = |pod: Option<&Value>| pod.is_some_and(|pod| pod["status"]["phase"] == phase);
        self.api.wait_until(path, is_so).await;
    }

    async fn end(&self, path: &str) {
        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        self.api.merge(path, &deleted);
        self.api.wait_until(path, |pod| pod.is_none()).await;
    }

    fn record(&self, pod: &str, container: &str) -> Value {
        let path = self.node.pod_folder(&format!("{pod}-uid")).join(format!("{container}.json"));
        serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
    }

    fn cgroup(&self, pod: &str) -> PathBuf {
        self.folder.path().join(format!("node/cgroup/kubepods/pod{pod}-uid"))
    }

    async fn pod_resources(&self) -> PodResourcesListerClient<Channel> {
        let socket = self.folder.path().join("node/kubelet/pod-resources/kubelet.sock");
        let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
        PodResourcesListerClient::new(endpoint.connect().await.unwrap())
    }
}

fn path_of(name: &str) -> String {
    format!("/api/v1/namespaces/ns/pods/{name}")
}

fn open(folder: &Path, api: &FakeApi) -> Arc<Node> {
    let host = Arc::new(ProcessHost::new(folder).unwrap());
    let (addresses, shutdown) = (Arc::new(PodAddresses::default()), CancellationToken::new());
    let node = Node::open(folder.join("node"), 0, api.client(), (addresses, host), shutdown);
    let node = Arc::new(node.unwrap());
    sockets::serve(&node, &TaskTracker::new()).unwrap();
    node
}

fn container(name: &str, count: usize) -> Value {
    json!({"name": name, "resources": {"limits": {GPU: count.to_string(), "cpu": "1"}}})
}

fn one_container(count: usize) -> Value {
    json!({"containers": [container("main", count)]})
}

/// Resource, device and NUMA node of each entry.
fn ids(devices: &[ContainerDevices]) -> Vec<(&str, &str, Option<i64>)> {
    let entries = devices.iter();
    entries
        .map(|ContainerDevices { resource_name, device_ids, topology }| {
            let node = topology.as_ref().map(|topology| topology.nodes[0].id);
            (resource_name.as_str(), device_ids[0].as_str(), node)
        })
        .collect()
}

#[tokio::test]
async fn counts_follow_the_plugin_s_list_and_its_end() {
    let fixture = Fixture::new();
    let folder = fixture.plugins();
    let refused = register(&folder, "v1alpha", GPU).await.unwrap_err();
    assert!(refused.message().contains("is not supported by kubelet"), "{refused}");
    let refused = register(&folder, "v1beta1", GPU).await.unwrap_err();
    assert!(refused.message().contains("failed to dial device plugin"), "{refused}");
    let plugin = fixture.plugin(2).await;
    plugin.list(vec![device("0", true, None), device("1", false, None)]);
    fixture.wait_for_count(2, 1).await;
    drop(plugin);
    fixture.wait_for_count(2, 0).await;
    // It comes back at the same socket.
    let plugin = fixture.plugin(3).await;
    assert_eq!(plugin.calls(), [""; 0]);
}

#[tokio::test]
async fn a_pod_gets_the_devices_that_the_plugin_prefers_until_it_ends() {
    let fixture = Fixture::new();
    let plugin = fixture.plugin(4).await;
    let one = fixture.pod("one", &one_container(2));
    fixture.wait_for_phase(&one, "Running").await;
    assert_eq!(plugin.calls(), ["prefer 2 of 0,1,2,3 with ", "allocate 2,3"]);
    let record = fixture.record("one", "main");
    assert_eq!(record["cdiDevices"], json!(["example.com/gpu=2", "example.com/gpu=3"]));
    assert_eq!(record["env"], json!(["DEVICES=2,3"]));
    assert!(fixture.cgroup("one").is_dir());
    let two = fixture.pod("two", &one_container(2));
    fixture.wait_for_phase(&two, "Running").await;
    assert_eq!(fixture.record("two", "main")["env"], json!(["DEVICES=0,1"]));

    // The status shows the health of its devices, which the plugin says.
    let health = "/status/containerStatuses/0/allocatedResourcesStatus/0";
    let devices = |healthy: [bool; 4]| {
        let devices = healthy.into_iter().enumerate();
        devices.map(|(id, is_healthy)| device(&id.to_string(), is_healthy, None)).collect()
    };
    plugin.list(devices([true, true, false, true]));
    let is_unwell = json!({"name": GPU, "resources": [
        {"resourceID": "2", "health": "Unhealthy"}, {"resourceID": "3", "health": "Healthy"},
    ]});
    let shows = |pod: Option<&Value>| pod.unwrap().pointer(health) == Some(&is_unwell);
    fixture.api.wait_until(&one, shows).await;
    plugin.list(devices([true; 4]));
    fixture.wait_for_count(4, 4).await;

    fixture.end(&one).await;
    assert!(!fixture.cgroup("one").exists());
    let three = fixture.pod("three", &one_container(1));
    fixture.wait_for_phase(&three, "Running").await;
    assert_eq!(fixture.record("three", "main")["env"], json!(["DEVICES=3"]));
    // A pod without devices costs nothing.
    let none = fixture.pod("none", &json!({"containers": [{"name": "main"}]}));
    fixture.wait_for_phase(&none, "Running").await;
    assert_eq!(fixture.record("none", "main")["cdiDevices"], json!([]));
    assert!(!fixture.cgroup("none").exists());
}

#[tokio::test]
async fn containers_use_the_devices_of_init_containers_again() {
    let fixture = Fixture::new();
    let plugin = fixture.plugin(4).await;
    let mut sidecar = container("sidecar", 1);
    sidecar["restartPolicy"] = "Always".into();
    let spec = json!({
        "initContainers": [container("init", 2), sidecar],
        "containers": [container("main", 2)],
    });
    let pod = fixture.pod("one", &spec);
    fixture.wait_for_phase(&pod, "Running").await;
    let allocated: Vec<String> =
        plugin.calls().into_iter().filter(|call| call.starts_with("allocate")).collect();
    assert_eq!(allocated, ["allocate 2,3", "allocate 2", "allocate 1,3"]);
    assert!(plugin.calls().contains(&"prefer 2 of 0,1,3 with 3".to_owned()));

    // `PodResources` leaves out the init container that ends.
    let mut client = fixture.pod_resources().await;
    let request = GetPodResourcesRequest { pod_name: "one".into(), pod_namespace: "ns".into() };
    let pod = client.get(request).await.unwrap().into_inner().pod_resources.unwrap();
    let names: Vec<&str> = pod.containers.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["sidecar", "main"]);
    assert_eq!(ids(&pod.containers[0].devices), [(GPU, "2", None)]);
}

#[tokio::test]
async fn a_pod_whose_devices_are_not_there_fails_its_admission() {
    let fixture = Fixture::new();
    let plugin = fixture.plugin(2).await;
    let pod = fixture.pod("big", &one_container(3));
    fixture.wait_for_phase(&pod, "Failed").await;
    let text = "Allocate failed due to requested number of devices unavailable for example.com/gpu. \
                Requested: 3, Available: 2, which is unexpected";
    let is_rejected = |pod: Option<&Value>| {
        let status = &pod.unwrap()["status"];
        status["reason"] == "UnexpectedAdmissionError"
            && status["message"] == format!("Pod was rejected: {text}")
            && status.get("containerStatuses").is_none()
    };
    fixture.api.wait_until(&pod, is_rejected).await;
    let event = fixture.api.created()[0].clone();
    assert_eq!(
        (&event["reason"], &event["note"]),
        (&json!("UnexpectedAdmissionError"), &json!(text))
    );
    fixture.end(&pod).await;

    // Devices of a pod that is rejected half-way are free again.
    plugin.fail(Some("the GPU is lost"));
    let pod = fixture.pod("lost", &one_container(1));
    fixture.wait_for_phase(&pod, "Failed").await;
    let note = "rpc error: code = InvalidArgument desc = the GPU is lost";
    assert!(fixture.api.created()[1]["note"].as_str().unwrap().contains(note));
    plugin.fail(None);
    let pod = fixture.pod("both", &one_container(2));
    fixture.wait_for_phase(&pod, "Running").await;
}

#[tokio::test]
async fn a_kubelet_that_starts_again_knows_which_devices_are_taken() {
    let mut fixture = Fixture::new();
    let plugin = fixture.plugin(3).await;
    let (one, two) = (fixture.pod("one", &one_container(1)), fixture.pod("two", &one_container(1)));
    fixture.wait_for_phase(&one, "Running").await;
    fixture.wait_for_phase(&two, "Running").await;
    let record = fixture.record("one", "main");
    fixture.restart();
    assert!(!fixture.plugins().join("fake.sock").exists(), "a kubelet removes the sockets");
    assert_eq!(fixture.node.devices.counts().borrow()[GPU], Count::default());
    // A pod that ran needs no plugin.
    fixture.run("one");
    let mut client = fixture.pod_resources().await;
    let listed = async {
        loop {
            let list = client.list(ListPodResourcesRequest {}).await.unwrap().into_inner();
            if let [pod] = list.pod_resources.as_slice() {
                return ids(&pod.containers[0].devices).len();
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(tokio::time::timeout(TEST_TIMEOUT, listed).await.unwrap(), 1);
    drop(plugin);

    // One that vanished meanwhile is an orphan.
    fixture.api.remove(&two);
    let plugin = fixture.plugin(3).await;
    let orphans = fixture.node.devices.orphans(&["one-uid".to_owned()].into());
    assert_eq!(orphans, ["two-uid".to_owned()].into());
    release_orphan(Arc::clone(&fixture.node), "two-uid".to_owned()).await;
    let next = fixture.pod("next", &one_container(2));
    fixture.wait_for_phase(&next, "Running").await;
    let (kept, new) = (&record["env"], &fixture.record("next", "main")["env"]);
    assert_eq!(&fixture.record("one", "main")["env"], kept);
    let kept = kept[0].as_str().unwrap().strip_prefix("DEVICES=").unwrap();
    assert!(!new[0].as_str().unwrap().contains(kept), "{kept} is given twice: {new}");
    assert_eq!(plugin.calls().len(), 2, "nothing is allocated again");
}

#[tokio::test]
async fn pod_resources_show_healthy_devices_and_those_of_pods() {
    let fixture = Fixture::new();
    let devices =
        vec![device("0", true, Some(1)), device("1", false, Some(0)), device("2", true, None)];
    let _plugin = FakeDevicePlugin::start(&fixture.plugins(), GPU, devices, true).await;
    fixture.wait_for_count(3, 2).await;
    let mut client = fixture.pod_resources().await;
    let answer = client.get_allocatable_resources(AllocatableResourcesRequest {}).await.unwrap();
    assert_eq!(ids(&answer.into_inner().devices), [(GPU, "0", Some(1)), (GPU, "2", None)]);
    let request = GetPodResourcesRequest { pod_name: "one".into(), pod_namespace: "ns".into() };
    let missing = client.get(request).await.unwrap_err();
    assert_eq!(missing.message(), "pod one in namespace ns not found");

    let pod = fixture.pod("one", &one_container(2));
    fixture.wait_for_phase(&pod, "Running").await;
    let list = client.list(ListPodResourcesRequest {}).await.unwrap().into_inner();
    let [pod] = list.pod_resources.as_slice() else { panic!("{list:?}") };
    assert_eq!((pod.namespace.as_str(), pod.name.as_str()), ("ns", "one"));
    assert_eq!(ids(&pod.containers[0].devices), [(GPU, "2", None), (GPU, "0", Some(1))]);
    fixture.end(&path_of("one")).await;
    let list = client.list(ListPodResourcesRequest {}).await.unwrap().into_inner();
    assert_eq!(list.pod_resources.len(), 0);
}
