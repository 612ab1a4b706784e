//! Registration of device plugins, and their lists of devices.
//!
//! ```text
//! Register -> connect, GetDevicePluginOptions -> ListAndWatch -> end: unhealthy -> five minutes: forgotten
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use octavo_kubelet_api::device_plugin::v1beta1::device_plugin_client::DevicePluginClient;
use octavo_kubelet_api::device_plugin::v1beta1::registration_server::Registration;
use octavo_kubelet_api::device_plugin::v1beta1::{self as wire, Empty, RegisterRequest};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use super::Plugin;
use super::resources::{Device, DeviceId};
use crate::kubelet::node::Node;

/// Version of the contract.
const VERSION: &str = "v1beta1";
/// Health of a device that containers may get.
const HEALTHY: &str = "Healthy";
/// Time for connecting to a plugin, as in the kubelet.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Time after the end of a plugin in which its resource stays known, as in the kubelet.
pub(super) const STOP_GRACE_PERIOD: Duration = Duration::from_mins(5);
/// Longest name of a resource without its prefix.
const MAX_NAME_BYTES: usize = 63;

/// The service to which the plugins of a node announce themselves.
pub(super) struct RegistrationService {
    pub(super) node: Arc<Node>,
    pub(super) tasks: TaskTracker,
}

#[tonic::async_trait]
impl Registration for RegistrationService {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let RegisterRequest { version, endpoint, resource_name: resource, .. } =
            request.into_inner();
        check(&version, &resource).map_err(Status::unknown)?;
        let manager = &self.node.devices;
        let client = connect(&manager.folder.join(endpoint)).await;
        let mut client = client
            .map_err(|error| Status::unknown(format!("failed to dial device plugin: {error}")))?;
        let options = client.get_device_plugin_options(Empty {}).await.map_err(|status| {
            let problem = status.message();
            Status::unknown(format!("failed to get device plugin options: {problem}"))
        })?;
        let plugin = Plugin { client: client.clone(), options: options.into_inner() };
        let registration = manager.state().resources.connected(&resource, plugin);
        tracing::info!(node = self.node.name, %resource, "device plugin connected");
        let node = Arc::clone(&self.node);
        self.tasks.spawn(async move {
            let follow = follow(&node, &resource, registration, client);
            node.shutdown.run_until_cancelled(follow).await;
        });
        Ok(Response::new(Empty {}))
    }
}

/// Follows the lists of a plugin until its end, and forgets its resource if no other comes.
async fn follow(
    node: &Node,
    resource: &str,
    registration: u64,
    mut client: DevicePluginClient<Channel>,
) {
    let manager = &node.devices;
    let ended = async {
        let mut lists = client.list_and_watch(Empty {}).await?.into_inner();
        while let Some(list) = lists.message().await? {
            let devices = devices(list.devices);
            if !manager.update_resources(|it| it.list(resource, registration, devices)) {
                break;
            }
        }
        Ok::<(), Status>(())
    };
    let ended = ended.await;
    drop(client);
    if !manager.update_resources(|it| it.disconnected(resource, registration)) {
        return;
    }
    tracing::info!(node = node.name, resource, ?ended, "device plugin gone");
    forget_later(node, resource, registration).await;
}

/// Forgets a resource after the grace period, unless its plugin has come back.
pub(super) async fn forget_later(node: &Node, resource: &str, registration: u64) {
    tokio::time::sleep(STOP_GRACE_PERIOD).await;
    node.devices.update_resources(|it| it.forget(resource, registration));
}

/// Connects to a plugin, with the authority that the kubelet sends.
async fn connect(socket: &Path) -> Result<DevicePluginClient<Channel>, String> {
    let endpoint = Endpoint::from_shared(format!("unix:{}", socket.display()));
    let endpoint = endpoint.map_err(|error| error.to_string())?;
    let endpoint = endpoint.origin(tonic::codegen::http::Uri::from_static("http://localhost"));
    match timeout(DIAL_TIMEOUT, endpoint.connect()).await {
        Ok(Ok(channel)) => Ok(DevicePluginClient::new(channel)),
        Ok(Err(error)) => Err(format!("{:#}", anyhow::Error::from(error))),
        Err(_) => Err("context deadline exceeded".to_owned()),
    }
}

/// The devices of a list, by id.
fn devices(listed: Vec<wire::Device>) -> BTreeMap<DeviceId, Device> {
    let device = |device: wire::Device| {
        let nodes = device.topology.into_iter().flat_map(|topology| topology.nodes);
        let numa_nodes = nodes.map(|node| node.id).collect();
        (device.id, Device { is_healthy: device.health == HEALTHY, numa_nodes })
    };
    listed.into_iter().map(device).collect()
}

/// Whether a plugin can be registered; the texts are the kubelet's.
fn check(version: &str, resource: &str) -> Result<(), String> {
    if version != VERSION {
        return Err(format!(
            "requested API version {version:?} is not supported by kubelet. Supported version is [{VERSION:?}]"
        ));
    }
    if !is_extended_resource(resource) {
        return Err(format!("the ResourceName {resource:?} is invalid"));
    }
    Ok(())
}

/// Whether a name is one of an extended resource: with a domain other than Kubernetes' own.
fn is_extended_resource(resource: &str) -> bool {
    let Some((domain, name)) = resource.split_once('/') else { return false };
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let has_form = |text: &str, inner: &[u8]| {
        let bytes = text.as_bytes();
        let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || inner.contains(byte);
        edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(is_inner)
    };
    let is_domain = domain.split('.').all(|label| has_form(label, b"-"))
        && domain.bytes().all(|byte| !byte.is_ascii_uppercase())
        // With the prefix that names in quotas have.
        && "requests.".len() + domain.len() <= 253;
    let is_name = name.len() <= MAX_NAME_BYTES && has_form(name, b"-_.");
    is_domain
        && is_name
        && !resource.contains("kubernetes.io/")
        && !resource.starts_with("requests.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_extended_resources_of_version_v1beta1_are_registered() {
        let long = format!("a.com/{}", "x".repeat(64));
        for name in ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "a/B_1"] {
            assert_eq!(check("v1beta1", name), Ok(()), "{name}");
        }
        for name in [
            "gpu",
            "cpu",
            "kubernetes.io/gpu",
            "a.kubernetes.io/gpu",
            "requests.nvidia.com/gpu",
            "nvidia.com/",
            "nvidia.com/-gpu",
            "Nvidia.com/gpu",
            "nvidia..com/gpu",
            "a/b/c",
            &long,
        ] {
            assert_eq!(
                check("v1beta1", name),
                Err(format!("the ResourceName {name:?} is invalid"))
            );
        }
        let refused = check("v1beta2", "nvidia.com/gpu").unwrap_err();
        assert!(refused.starts_with("requested API version \"v1beta2\" is not supported"));
    }
}
