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
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::metrics::Metrics;
use crate::node::DRIVER_NAME;

/// File name of the registration socket of an agent that is alone on its node; one with an instance id
/// has it after the driver's name: `gpu.nvidia.com-<id>@reg.sock`.
///
/// The `@` must stay. On this socket the kubelet sends the percent-encoded path as HTTP/2's
/// `:authority`; the h2 library refuses an authority with `%` before any handler runs, unless the
/// `%` stands before an `@`, where it passes for a user name. After the `@` only
/// `[A-Za-z0-9._~-]` may follow. A test holds the good and the bad form.
pub const REGISTRATION_SOCKET: &str = "gpu.nvidia.com@reg.sock";
const SOCKET_SUFFIX: &str = "@reg.sock";

/// Services on the DRA socket, as the kubelet's plugin manager names them. The kubelet takes the
/// newest of `DRAPlugin` that it knows.
pub const SUPPORTED_VERSIONS: [&str; 4] =
    ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

/// What the kubelet makes of the driver: a check for people, a channel for the agent.
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
    verdict: Arc<KubeletRegistration>,
    metrics: Arc<Metrics>,
}

impl KubeletRegistration {
    /// No verdict yet; `check` passes while the kubelet says that it uses the driver.
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
        verdict: Arc<KubeletRegistration>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let info = PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: DRIVER_NAME.to_owned(),
            endpoint: endpoint.to_string_lossy().into_owned(),
            supported_versions: SUPPORTED_VERSIONS.map(str::to_owned).to_vec(),
        };
        metrics.registered(node, false);
        Self { info, node: node.to_owned(), verdict, metrics }
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
            self.verdict.set(None);
        } else {
            tracing::error!(node = %self.node, error = %status.error, "the kubelet refused the driver");
            self.verdict.set(Some(&status.error));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

/// Path of the registration socket in the kubelet's folder for them.
pub(crate) fn socket_path(registry: &Path, instance: Option<&str>) -> PathBuf {
    match instance {
        None => registry.join(REGISTRATION_SOCKET),
        Some(id) => registry.join(format!("{DRIVER_NAME}-{id}{SOCKET_SUFFIX}")),
    }
}

/// Whether a file's name is that of a registration socket of this driver, whosesoever.
pub(crate) fn is_socket_name(name: &str) -> bool {
    let id = name.strip_prefix(DRIVER_NAME).and_then(|rest| rest.strip_suffix(SOCKET_SUFFIX));
    id.is_some_and(|id| id.is_empty() || id.starts_with('-'))
}

#[cfg(test)]
mod tests;
