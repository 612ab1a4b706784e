//! How the agent introduces itself to the kubelet.
//!
//! The kubelet watches a folder, connects to every socket in it and asks what serves there. It asks
//! again whenever it starts, and gives up after about a second: the answer comes from memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use octavo_kube_io::admin::Check;
use octavo_kubelet_api::registration::v1::registration_server::Registration;
use octavo_kubelet_api::registration::v1::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use tonic::{Request, Response, Status};

use crate::metrics::Metrics;
use crate::node::DRIVER_NAME;

/// File name of the registration socket.
///
/// The `@` must stay. On this socket the kubelet sends the percent-encoded path as HTTP/2's
/// `:authority`; the h2 library refuses an authority with `%` before any handler runs, unless the
/// `%` stands before an `@`, where it passes for a user name. After the `@` only
/// `[A-Za-z0-9._~-]` may follow. A test holds the good and the bad form.
pub const REGISTRATION_SOCKET: &str = "gpu.nvidia.com@reg.sock";

/// Services on the DRA socket, as the kubelet's plugin manager names them. The kubelet takes the
/// newest of `DRAPlugin` that it knows.
pub const SUPPORTED_VERSIONS: [&str; 4] =
    ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

/// Answers the kubelet's questions on the registration socket.
#[derive(Debug)]
pub(crate) struct Registrar {
    info: PluginInfo,
    node: String,
    check: Arc<Check>,
    metrics: Arc<Metrics>,
}

impl Registrar {
    /// Registers the DRA socket at `endpoint`, an absolute path. `check` passes while the kubelet
    /// says that it uses the driver.
    pub(crate) fn new(
        node: &str,
        endpoint: &Path,
        check: Arc<Check>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let info = PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: DRIVER_NAME.to_owned(),
            endpoint: endpoint.to_string_lossy().into_owned(),
            supported_versions: SUPPORTED_VERSIONS.map(str::to_owned).to_vec(),
        };
        metrics.registered(node, false);
        Self { info, node: node.to_owned(), check, metrics }
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
            self.check.pass();
        } else {
            tracing::error!(node = %self.node, error = %status.error, "the kubelet refused the driver");
            self.check.fail(format!("the kubelet refused the driver: {}", status.error));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// Path of the registration socket in the kubelet's folder for them.
pub(crate) fn socket_path(registry: &Path) -> PathBuf {
    registry.join(REGISTRATION_SOCKET)
}

#[cfg(test)]
mod tests;
