use std::sync::Mutex;

use futures::StreamExt as _;
use octavo_kubelet_api::device_plugin::v1beta1::device_plugin_client::DevicePluginClient;
use octavo_kubelet_api::device_plugin::v1beta1::registration_server::{
    Registration, RegistrationServer,
};
use octavo_kubelet_api::device_plugin::v1beta1::{
    AllocateRequest, ContainerAllocateRequest, ContainerPreferredAllocationRequest, Device, Empty,
    ListAndWatchResponse, PreferredAllocationRequest,
};
use octavo_testkit::eventually;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};

use super::*;
use crate::device_plugin::offer::Offer;
use crate::testing;

/// The kubelet's side: it notes registrations.
#[derive(Clone, Default)]
struct Registrations(Arc<Mutex<Vec<RegisterRequest>>>);

#[tonic::async_trait]
impl Registration for Registrations {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        self.0.lock().unwrap().push(request.into_inner());
        Ok(Response::new(Empty {}))
    }
}

struct Kubelet {
    root: TempDir,
    registrations: Registrations,
    stop: CancellationToken,
}

impl Kubelet {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let (registrations, stop) = (Registrations::default(), CancellationToken::new());
        Self { root, registrations, stop }
    }

    fn folder(&self) -> PathBuf {
        self.root.path().to_owned()
    }

    /// Starts it, as a kubelet does: all sockets of the folder are removed.
    fn start(&mut self) {
        self.stop.cancel();
        self.stop = CancellationToken::new();
        for entry in std::fs::read_dir(self.folder()).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let listener = UnixListener::bind(self.folder().join(KUBELET_SOCKET)).unwrap();
        let service = RegistrationServer::new(self.registrations.clone());
        let server = Server::builder().add_service(service).serve_with_incoming_shutdown(
            UnixListenerStream::new(listener),
            self.stop.clone().cancelled_owned(),
        );
        tokio::spawn(server);
    }

    fn names(&self) -> Vec<String> {
        let registrations = self.registrations.0.lock().unwrap();
        registrations.iter().map(|request| request.resource_name.clone()).collect()
    }

    async fn client(&self, endpoint: &str) -> DevicePluginClient<Channel> {
        let path = format!("unix://{}", self.folder().join(endpoint).display());
        DevicePluginClient::new(Endpoint::try_from(path).unwrap().connect().await.unwrap())
    }
}

async fn next(lists: &mut Streaming<ListAndWatchResponse>) -> Vec<Device> {
    lists.next().await.unwrap().unwrap().devices
}

fn unserved() -> watch::Sender<Problems> {
    watch::channel(Problems::default()).0
}

fn counter() -> AllocationCounter {
    AllocationCounter { node: "node".to_owned(), metrics: Arc::default() }
}

fn healths(devices: &[Device]) -> Vec<&str> {
    devices.iter().map(|device| device.health.as_str()).collect()
}

#[tokio::test]
async fn a_resource_is_registered_listed_and_allocated() {
    let mut kubelet = Kubelet::new();
    kubelet.start();
    let (offers, offered) = watch::channel(Arc::new(Offer::default()));
    let stop = CancellationToken::new();
    let root = kubelet.root.path().to_owned();
    let served = tokio::spawn(serve(root, offered, unserved(), counter(), stop.clone()));
    offers.send_replace(Arc::new(Offer::of_gpus(testing::inventory(2))));
    eventually("the resource is registered", || kubelet.names() == ["nvidia.com/gpu"]).await;
    let request = kubelet.registrations.0.lock().unwrap()[0].clone();
    assert_eq!(
        (request.version.as_str(), request.endpoint.as_str()),
        ("v1beta1", "nvidia-gpu.sock")
    );
    assert!(request.options.unwrap().get_preferred_allocation_available);

    let mut client = kubelet.client(&request.endpoint).await;
    let mut lists = client.list_and_watch(Empty {}).await.unwrap().into_inner();
    let devices = next(&mut lists).await;
    let found: Vec<(String, &str)> =
        devices.iter().map(|device| (device.id.clone(), device.health.as_str())).collect();
    assert_eq!(found, [(testing::uuid(0), "Healthy"), (testing::uuid(1), "Healthy")]);
    assert_eq!(devices[0].topology.as_ref().unwrap().nodes[0].id, 0);

    let containers = vec![ContainerAllocateRequest { devices_ids: vec![testing::uuid(1)] }];
    let answer = client.allocate(AllocateRequest { container_requests: containers }).await.unwrap();
    let container = &answer.into_inner().container_responses[0];
    let name = format!("k8s.device-plugin.nvidia.com/gpu={}", testing::uuid(1));
    assert_eq!(container.cdi_devices[0].name, name);
    let containers = vec![ContainerAllocateRequest { devices_ids: vec!["GPU-x".to_owned()] }];
    let refused = client.allocate(AllocateRequest { container_requests: containers }).await;
    assert!(refused.unwrap_err().message().contains("no device GPU-x"));
    let containers = vec![ContainerPreferredAllocationRequest {
        available_device_i_ds: vec![testing::uuid(0), testing::uuid(1)],
        must_include_device_i_ds: vec![testing::uuid(1)],
        allocation_size: 1,
    }];
    let request = PreferredAllocationRequest { container_requests: containers };
    let preferred = client.get_preferred_allocation(request).await.unwrap().into_inner();
    assert_eq!(preferred.container_responses[0].device_i_ds, [testing::uuid(1)]);

    // The list is sent again when it has changed, and empty when the resource is offered no more.
    offers.send_replace(Arc::new(Offer::of_gpus(testing::inventory(2))));
    offers.send_replace(Arc::new(Offer::of_gpus(testing::inventory(1))));
    assert_eq!(healths(&next(&mut lists).await), ["Healthy", "Unhealthy"], "not gone at once");
    assert_eq!(healths(&next(&mut lists).await), ["Healthy"]);
    offers.send_replace(Arc::new(Offer::default()));
    assert_eq!(healths(&next(&mut lists).await), ["Unhealthy"]);
    assert_eq!(healths(&next(&mut lists).await), [""; 0]);
    let containers = vec![ContainerAllocateRequest { devices_ids: vec![testing::uuid(0)] }];
    let refused = client.allocate(AllocateRequest { container_requests: containers }).await;
    assert!(refused.unwrap_err().message().contains("not offered any more"));
    assert_eq!(kubelet.names().len(), 1, "nothing was registered again");

    // Another plugin can take the resource over. Offered again, it is registered again.
    let socket = kubelet.folder().join("nvidia-gpu.sock");
    eventually("the resource has ended", || !socket.exists()).await;
    kubelet.start();
    assert_eq!(kubelet.names().len(), 1, "not for a kubelet that starts");
    offers.send_replace(Arc::new(Offer::of_gpus(testing::inventory(1))));
    eventually("the resource is registered again", || kubelet.names().len() == 2).await;
    stop.cancel();
    served.await.unwrap();
    assert!(!kubelet.folder().join("nvidia-gpu.sock").exists());
}

#[tokio::test]
async fn a_kubelet_that_starts_again_or_late_gets_the_resource() {
    let mut kubelet = Kubelet::new();
    let (_offers, offered) = watch::channel(Arc::new(Offer::of_gpus(testing::inventory(1))));
    let stop = CancellationToken::new();
    let served =
        tokio::spawn(serve(kubelet.folder(), offered, unserved(), counter(), stop.clone()));
    for starts in 1..=3 {
        kubelet.start();
        eventually("the resource is registered", || kubelet.names().len() >= starts).await;
        eventually("the resource is served", || kubelet.folder().join("nvidia-gpu.sock").exists())
            .await;
        let mut client = kubelet.client("nvidia-gpu.sock").await;
        let mut lists = client.list_and_watch(Empty {}).await.unwrap().into_inner();
        assert_eq!(next(&mut lists).await.len(), 1);
    }
    stop.cancel();
    served.await.unwrap();
}

#[tokio::test]
async fn another_plugin_at_the_socket_is_reported_and_waited_for() {
    let mut kubelet = Kubelet::new();
    kubelet.start();
    let other = UnixListener::bind(kubelet.folder().join("nvidia-gpu.sock")).unwrap();
    let (_offers, offered) = watch::channel(Arc::new(Offer::of_gpus(testing::inventory(1))));
    let (unserved, stop) = (unserved(), CancellationToken::new());
    let problems = unserved.subscribe();
    let served = tokio::spawn(serve(kubelet.folder(), offered, unserved, counter(), stop.clone()));
    let note = || problems.borrow().get("ResourceNotServed");
    eventually("the other plugin is reported", || note().is_some()).await;
    assert!(note().unwrap().contains("another device plugin serves nvidia.com/gpu at "));
    assert_eq!(kubelet.names(), [""; 0]);
    drop(other);
    eventually("the resource is registered", || kubelet.names() == ["nvidia.com/gpu"]).await;
    assert_eq!(note(), None);
    stop.cancel();
    served.await.unwrap();
}

#[test]
fn a_socket_has_the_name_of_nvidia_s_plugin() {
    let path = |resource| socket_path(Path::new("/f"), resource).display().to_string();
    assert_eq!(path("nvidia.com/gpu"), "/f/nvidia-gpu.sock");
    assert_eq!(path("nvidia.com/mig-1g.10gb"), "/f/nvidia-mig-1g.10gb.sock");
}
