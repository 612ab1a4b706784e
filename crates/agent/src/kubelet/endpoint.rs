//! The agent's two sockets and the services on them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use octavo_kubelet_api::dra::{v1, v1beta1};
use octavo_kubelet_api::health;
use octavo_kubelet_api::registration::v1::registration_server::RegistrationServer;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Server;

use crate::config::NodeConfig;
use crate::kubelet::health_stream::HealthService;
use crate::kubelet::plugin::{Plugin, Preparer};
use crate::kubelet::registration::{
    HEALTH_VERSIONS, KubeletRegistration, PLUGIN_VERSIONS, Registrar,
};
use crate::kubelet::socket::{self, Socket, SocketError};
use crate::metrics::Metrics;
use crate::monitor::Snapshot;
use crate::node::DraDriver;

/// Time for the last answers to be sent at shutdown.
const FINAL_ANSWERS_DELAY: Duration = Duration::from_millis(200);

/// Dependencies of a node's services.
pub(crate) struct Services<P> {
    pub(crate) preparer: Arc<P>,
    /// What the health of devices is taken from; `None` for a driver whose devices have none.
    pub(crate) health: Option<HealthSource>,
    pub(crate) metrics: Arc<Metrics>,
    /// Registration state at the kubelet.
    pub(crate) registration: Arc<KubeletRegistration>,
}

/// Source of the health of devices.
pub(crate) struct HealthSource {
    pub(crate) snapshots: watch::Receiver<Snapshot>,
    /// Triggers a repeated health report without a change.
    pub(crate) again: watch::Receiver<()>,
}

/// Bound sockets that are not served yet. Connections wait in them.
#[derive(Debug)]
pub(crate) struct Endpoint {
    driver: DraDriver,
    node: String,
    plugin_path: PathBuf,
    plugin: Socket,
    registration: Socket,
}

impl Endpoint {
    /// Binds a driver's DRA socket, then its registration socket. The kubelet must never see the second without the first.
    pub(crate) fn bind(driver: DraDriver, config: &NodeConfig) -> Result<Self, SocketError> {
        let instance = config.instance_id.as_deref().map(short_instance);
        let folder = driver.plugin_folder(&config.paths.kubelet_root);
        let plugin_path = folder.join(socket_name(instance));
        let plugin = Socket::bind(&plugin_path)?;
        let registration = config.registry_folder().join(driver.registration_socket(instance));
        let registration = Socket::bind(&registration)?;
        Ok(Self { driver, node: config.node_name.clone(), plugin_path, plugin, registration })
    }

    /// Serves both sockets until `stop`, and finishes running calls. Idle connections are not awaited, so a hanging
    /// kubelet cannot delay the shutdown.
    pub(crate) async fn serve<P: Preparer>(
        self,
        parts: Services<P>,
        stop: CancellationToken,
    ) -> Result<(), tonic::transport::Error> {
        let Services { preparer, health, metrics, registration } = parts;
        let mut services = PLUGIN_VERSIONS.to_vec();
        services.extend(health.iter().flat_map(|_| HEALTH_VERSIONS));
        let registrar = Registrar::new(
            self.driver,
            &self.node,
            &self.plugin_path,
            &services,
            registration,
            Arc::clone(&metrics),
        );
        let health = health
            .map(|from| HealthService::new(&self.node, from.snapshots, from.again, stop.clone()));
        let calls = TaskTracker::new();
        let plugin = Plugin::new(self.driver, preparer, metrics, calls.clone());
        let (plugin_calls, registration_calls) =
            socket::accept(self.plugin, self.registration, stop.clone());
        let plugin_server =
            Server::builder()
                .add_service(v1::dra_plugin_server::DraPluginServer::new(plugin.clone()))
                .add_service(v1beta1::dra_plugin_server::DraPluginServer::new(plugin))
                .add_optional_service(
                    health
                        .clone()
                        .map(health::v1::dra_resource_health_server::DraResourceHealthServer::new),
                )
                .add_optional_service(health.map(
                    health::v1alpha1::dra_resource_health_server::DraResourceHealthServer::new,
                ))
                .serve_with_incoming_shutdown(
                    ReceiverStream::new(plugin_calls),
                    stop.clone().cancelled_owned(),
                );
        let registration_server = Server::builder()
            .add_service(RegistrationServer::new(registrar))
            .serve_with_incoming_shutdown(
                ReceiverStream::new(registration_calls),
                stop.clone().cancelled_owned(),
            );
        let answered = async {
            stop.cancelled().await;
            calls.close();
            calls.wait().await;
            sleep(FINAL_ANSWERS_DELAY).await;
        };
        tokio::select! {
            ended = async { tokio::try_join!(plugin_server, registration_server) } => ended.map(|_| ()),
            () = answered => Ok(()),
        }
    }
}

/// The part of an instance id that names sockets. Of a pod's UID it is the first eight digits, since kubelet roots such
/// as that of `MicroK8s` leave no room for all. Two pods of one node with the same ones could not run beside each other,
/// and the second waits.
fn short_instance(id: &str) -> &str {
    const UUID_LENGTH: usize = 36;
    match id.split_once('-') {
        Some((first, _)) if id.len() == UUID_LENGTH && first.len() == 8 => first,
        _ => id,
    }
}

/// File name of the DRA socket. The kubelet rejects two instances of a driver with the same socket.
fn socket_name(instance: Option<&str>) -> String {
    match instance {
        None => "dra.sock".to_owned(),
        Some(id) => format!("dra-{id}.sock"),
    }
}

/// Whether a file name is that of a DRA socket, from any instance.
pub(crate) fn is_socket_name(name: &str) -> bool {
    let instance = name.strip_prefix("dra").and_then(|rest| rest.strip_suffix(".sock"));
    instance.is_some_and(|instance| instance.is_empty() || instance.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_sockets_of_a_pod_fit_below_long_roots() {
        const MICROK8S: &str = "/var/snap/microk8s/common/var/lib/kubelet";
        let uid = "5a1f3b52-0c5e-4d0a-9f6a-7d8e9f001122";
        let short = Some(short_instance(uid));
        assert_eq!(short, Some("5a1f3b52"));
        let driver = DraDriver::GPU;
        let plugin = driver.plugin_folder(Path::new(MICROK8S)).join(socket_name(short));
        let registry = Path::new(MICROK8S).join("plugins_registry");
        for path in [plugin, registry.join(driver.registration_socket(short))] {
            assert!(path.as_os_str().len() <= 107, "{}", path.display());
        }
        for id in ["a", "node-a", "12345678", "not-a-uid-although-it-has-36-letters"] {
            assert_eq!(short_instance(id), id);
        }
    }
}
