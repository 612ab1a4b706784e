//! Registration of the agent with the kubelet.
//!
//! The kubelet watches a folder, connects to every socket in it, and asks for the plugin's info. It repeats this at
//! every start and times out after about a second, so the answer is kept in memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use octavo_kube_io::admin::Check;
use octavo_kubelet_api::registration::v1::registration_server::Registration;
use octavo_kubelet_api::registration::v1::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::metrics::Metrics;
use crate::node::DRIVER_NAME;

/// File name of the registration socket without an instance id. With an id it is `gpu.nvidia.com-<id>@reg.sock`.
///
/// The `@` is required. On this socket the kubelet sends the percent-encoded path as HTTP/2's `:authority`. The h2
/// library rejects an authority with `%` before any handler runs, unless the `%` precedes an `@` and passes as user
/// info. After the `@` only `[A-Za-z0-9._~-]` may follow. A test covers both forms.
pub const REGISTRATION_SOCKET: &str = "gpu.nvidia.com@reg.sock";
const SOCKET_SUFFIX: &str = "@reg.sock";

/// Services on the DRA socket, as the kubelet's plugin manager names them. The kubelet selects the newest `DRAPlugin`
/// that it supports.
pub const SUPPORTED_VERSIONS: [&str; 4] =
    ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

/// Registration state at the kubelet: a readiness check, and a channel for the agent.
#[derive(Debug)]
pub(crate) struct KubeletRegistration {
    check: Check,
    is_registered: watch::Sender<bool>,
}

/// Answers the kubelet's questions on the registration socket.
#[derive(Debug)]
pub(crate) struct Registrar {
    info: PluginInfo,
    node: String,
    registration: Arc<KubeletRegistration>,
    metrics: Arc<Metrics>,
}

impl KubeletRegistration {
    /// Initial state. `check` passes while the kubelet uses the driver.
    pub(crate) fn new(check: Check) -> Self {
        Self { check, is_registered: watch::Sender::new(false) }
    }

    /// Waits until the kubelet uses the driver.
    pub(crate) async fn registered(&self) {
        // Cannot fail: the sender is here.
        let _ = self.is_registered.subscribe().wait_for(|is_registered| *is_registered).await;
    }

    fn set(&self, refusal: Option<&str>) {
        match refusal {
            None => self.check.pass(),
            Some(error) => self.check.fail(format!("the kubelet refused the driver: {error}")),
        }
        self.is_registered.send_replace(refusal.is_none());
    }
}

impl Registrar {
    /// Registers the DRA socket at `endpoint`, an absolute path.
    pub(crate) fn new(
        node: &str,
        endpoint: &Path,
        registration: Arc<KubeletRegistration>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let info = PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: DRIVER_NAME.to_owned(),
            endpoint: endpoint.to_string_lossy().into_owned(),
            supported_versions: SUPPORTED_VERSIONS.map(str::to_owned).to_vec(),
        };
        metrics.registered(node, false);
        Self { info, node: node.to_owned(), registration, metrics }
    }
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        self.metrics.registered(&self.node, status.plugin_registered);
        if status.plugin_registered {
            tracing::info!(node = %self.node, "the kubelet has registered the driver");
            self.registration.set(None);
        } else {
            tracing::error!(node = %self.node, error = %status.error, "the kubelet refused the driver");
            self.registration.set(Some(&status.error));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// Path of the registration socket in the kubelet's registry folder.
pub(crate) fn socket_path(registry: &Path, instance: Option<&str>) -> PathBuf {
    match instance {
        None => registry.join(REGISTRATION_SOCKET),
        Some(id) => registry.join(format!("{DRIVER_NAME}-{id}{SOCKET_SUFFIX}")),
    }
}

/// Whether a file name is that of a registration socket of this driver, from any instance.
pub(crate) fn is_socket_name(name: &str) -> bool {
    let id = name.strip_prefix(DRIVER_NAME).and_then(|rest| rest.strip_suffix(SOCKET_SUFFIX));
    id.is_some_and(|id| id.is_empty() || id.starts_with('-'))
}

#[cfg(test)]
mod tests;
