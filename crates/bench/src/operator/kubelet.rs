//! The kubelet's sockets for device plugins, as a measuring client.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use octavo_kubelet_api::device_plugin::v1beta1::device_plugin_client::DevicePluginClient;
use octavo_kubelet_api::device_plugin::v1beta1::{AllocateRequest, ContainerAllocateRequest};
use octavo_kubelet_api::pod_resources::v1::AllocatableResourcesRequest;
use octavo_kubelet_api::pod_resources::v1::pod_resources_lister_client::PodResourcesListerClient;
use tonic::transport::{Channel, Endpoint};

/// The sockets of one node.
pub(super) struct PluginKubelet {
    folder: PathBuf,
}

/// A connection to the socket of one resource.
pub(super) struct Plugin(DevicePluginClient<Channel>);

impl PluginKubelet {
    /// The sockets of the node with this folder.
    pub(super) fn new(node: &Path) -> Self {
        Self { folder: node.join("kubelet") }
    }

    /// The devices of a resource that the kubelet may give out.
    pub(super) async fn listed(&self, resource: &str) -> anyhow::Result<BTreeSet<String>> {
        let channel = connect(&self.folder.join("pod-resources/kubelet.sock")).await?;
        let request = AllocatableResourcesRequest {};
        let mut client = PodResourcesListerClient::new(channel);
        let answer = client.get_allocatable_resources(request).await?.into_inner();
        let devices = answer.devices.into_iter().filter(|device| device.resource_name == resource);
        Ok(devices.flat_map(|device| device.device_ids).collect())
    }

    /// Connects to the socket of a resource.
    pub(super) async fn plugin(&self, socket: &str) -> anyhow::Result<Plugin> {
        let channel = connect(&self.folder.join("device-plugins").join(socket)).await?;
        Ok(Plugin(DevicePluginClient::new(channel)))
    }
}

impl Plugin {
    /// Allocates a device, and returns the CDI names for its container.
    pub(super) async fn allocate(&mut self, device: &str) -> anyhow::Result<Vec<String>> {
        let container = ContainerAllocateRequest { devices_ids: vec![device.to_owned()] };
        let request = AllocateRequest { container_requests: vec![container] };
        let answer = self.0.allocate(request).await?.into_inner();
        let containers = answer.container_responses.into_iter();
        Ok(containers.flat_map(|it| it.cdi_devices).map(|device| device.name).collect())
    }
}

async fn connect(socket: &Path) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::try_from(format!("unix:{}", socket.display()))?;
    endpoint.connect().await.with_context(|| format!("connect to {}", socket.display()))
}
