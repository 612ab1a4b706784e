//! A device plugin for tests, on a socket in the kubelet's folder. It records all calls.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures::{Stream, StreamExt as _};
use octavo_kubelet_api::device_plugin::v1beta1::device_plugin_server::{
    DevicePlugin, DevicePluginServer,
};
use octavo_kubelet_api::device_plugin::v1beta1::registration_client::RegistrationClient;
use octavo_kubelet_api::device_plugin::v1beta1::{
    AllocateRequest, AllocateResponse, CdiDevice, ContainerAllocateResponse,
    ContainerPreferredAllocationResponse, Device, DevicePluginOptions, Empty, ListAndWatchResponse,
    NumaNode, PreStartContainerRequest, PreStartContainerResponse, PreferredAllocationRequest,
    PreferredAllocationResponse, RegisterRequest, TopologyInfo,
};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::{UnixListenerStream, WatchStream};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

/// Name of the plugin's socket.
const SOCKET: &str = "fake.sock";

/// A plugin that runs until it is dropped.
pub(crate) struct FakeDevicePlugin {
    shared: Arc<Shared>,
}

struct Shared {
    devices: watch::Sender<Vec<Device>>,
    calls: Mutex<Vec<String>>,
    failure: Mutex<Option<String>>,
    prefers_last: bool,
    stop: CancellationToken,
}

#[derive(Clone)]
struct Service(Arc<Shared>);

/// A healthy or unhealthy device, near a NUMA node or near none.
pub(crate) fn device(id: &str, is_healthy: bool, numa_node: Option<i64>) -> Device {
    let health = if is_healthy { "Healthy" } else { "Unhealthy" };
    Device {
        id: id.to_owned(),
        health: health.to_owned(),
        topology: numa_node.map(|id| TopologyInfo { nodes: vec![NumaNode { id }] }),
    }
}

impl FakeDevicePlugin {
    /// Starts a plugin in the folder of plugins' sockets, and registers it. `prefers_last`: it wants containers to have the
    /// last devices that are free.
    pub(crate) async fn start(
        folder: &Path,
        resource: &str,
        devices: Vec<Device>,
        prefers_last: bool,
    ) -> Self {
        let shared = Arc::new(Shared {
            devices: watch::Sender::new(devices),
            calls: Mutex::default(),
            failure: Mutex::default(),
            prefers_last,
            stop: CancellationToken::new(),
        });
        let socket = folder.join(SOCKET);
        drop(std::fs::remove_file(&socket));
        let listener = UnixListener::bind(&socket).unwrap();
        let server = Server::builder()
            .add_service(DevicePluginServer::new(Service(Arc::clone(&shared))))
            .serve_with_incoming_shutdown(
                UnixListenerStream::new(listener),
                shared.stop.clone().cancelled_owned(),
            );
        tokio::spawn(server);
        register(folder, "v1beta1", resource).await.unwrap();
        Self { shared }
    }

    /// Lists other devices.
    pub(crate) fn list(&self, devices: Vec<Device>) {
        self.shared.devices.send_replace(devices);
    }

    /// Makes every `Allocate` fail with `error`; `None` ends that.
    pub(crate) fn fail(&self, error: Option<&str>) {
        *self.shared.failure.lock().unwrap() = error.map(ToOwned::to_owned);
    }

    /// All calls for containers in order, as `prefer 1 of a,b with c` and `allocate a`.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.shared.calls.lock().unwrap().clone()
    }
}

impl Drop for FakeDevicePlugin {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

/// Registers the plugin at the fake's socket.
pub(crate) async fn register(folder: &Path, version: &str, resource: &str) -> Result<(), Status> {
    let socket = folder.join("kubelet.sock");
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display())).unwrap();
    let request = RegisterRequest {
        version: version.to_owned(),
        endpoint: SOCKET.to_owned(),
        resource_name: resource.to_owned(),
        options: None,
    };
    let mut client = RegistrationClient::new(endpoint.connect().await.unwrap());
    client.register(request).await.map(drop)
}

impl Service {
    fn record(&self, call: String) {
        self.0.calls.lock().unwrap().push(call);
    }
}

#[tonic::async_trait]
impl DevicePlugin for Service {
    async fn get_device_plugin_options(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<DevicePluginOptions>, Status> {
        Ok(Response::new(DevicePluginOptions {
            pre_start_required: false,
            get_preferred_allocation_available: self.0.prefers_last,
        }))
    }

    type ListAndWatchStream =
        Pin<Box<dyn Stream<Item = Result<ListAndWatchResponse, Status>> + Send>>;

    async fn list_and_watch(
        &self,
        _: Request<Empty>,
    ) -> Result<Response<Self::ListAndWatchStream>, Status> {
        let lists = WatchStream::new(self.0.devices.subscribe());
        let lists = lists.take_until(self.0.stop.clone().cancelled_owned());
        Ok(Response::new(Box::pin(lists.map(|devices| Ok(ListAndWatchResponse { devices })))))
    }

    async fn get_preferred_allocation(
        &self,
        request: Request<PreferredAllocationRequest>,
    ) -> Result<Response<PreferredAllocationResponse>, Status> {
        let containers = request.into_inner().container_requests.into_iter().map(|container| {
            let (available, taken) =
                (container.available_device_i_ds, container.must_include_device_i_ds);
            let size = usize::try_from(container.allocation_size).unwrap();
            self.record(format!(
                "prefer {size} of {} with {}",
                available.join(","),
                taken.join(",")
            ));
            let free = available.iter().rev().filter(|id| !taken.contains(id));
            let device_i_ds = taken.iter().chain(free).take(size).cloned().collect();
            ContainerPreferredAllocationResponse { device_i_ds }
        });
        let container_responses = containers.collect();
        Ok(Response::new(PreferredAllocationResponse { container_responses }))
    }

    async fn allocate(
        &self,
        request: Request<AllocateRequest>,
    ) -> Result<Response<AllocateResponse>, Status> {
        if let Some(failure) = self.0.failure.lock().unwrap().clone() {
            return Err(Status::invalid_argument(failure));
        }
        let containers = request.into_inner().container_requests.into_iter().map(|container| {
            let ids = container.devices_ids.join(",");
            self.record(format!("allocate {ids}"));
            let cdi = container.devices_ids.iter().map(|id| format!("example.com/gpu={id}"));
            ContainerAllocateResponse {
                envs: [("DEVICES".to_owned(), ids)].into(),
                cdi_devices: cdi.map(|name| CdiDevice { name }).collect(),
                ..ContainerAllocateResponse::default()
            }
        });
        let container_responses = containers.collect();
        Ok(Response::new(AllocateResponse { container_responses }))
    }

    async fn pre_start_container(
        &self,
        _: Request<PreStartContainerRequest>,
    ) -> Result<Response<PreStartContainerResponse>, Status> {
        Ok(Response::new(PreStartContainerResponse {}))
    }
}
