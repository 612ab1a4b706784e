//! Registration of the agent with the kubelet.
//!
//! The kubelet watches a folder, connects to every socket in it, and asks for the plugin's info. It repeats this at
//! every start and times out after about a second, so the answer is kept in memory.

use std::path::Path;
use std::sync::Arc;

use octavo_kube_io::admin::Check;
use octavo_kubelet_api::registration::v1::registration_server::Registration;
use octavo_kubelet_api::registration::v1::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::metrics::Metrics;
use crate::node::DraDriver;

/// Services on the DRA socket that prepare claims, as the kubelet's plugin manager names them. The kubelet selects the
/// newest that it supports.
pub const PLUGIN_VERSIONS: [&str; 2] = ["v1.DRAPlugin", "v1beta1.DRAPlugin"];

/// Services on the DRA socket that report the health of devices.
pub const HEALTH_VERSIONS: [&str; 2] = ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];

/// Registration state at the kubelet: a readiness check, and a channel for the agent.
#[derive(Debug)]
pub(crate) struct KubeletRegistration {
    check: Check,
    is_registered: watch::Sender<bool>,
}

/// Answers the kubelet's questions on the registration socket.
#[derive(Debug)]
pub(crate) struct Registrar {
    driver: DraDriver,
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
    /// Registers the DRA socket at `endpoint`, an absolute path, with its services.
    pub(crate) fn new(
        driver: DraDriver,
        node: &str,
        endpoint: &Path,
        services: &[&str],
        registration: Arc<KubeletRegistration>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let info = PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: driver.name().to_owned(),
            endpoint: endpoint.to_string_lossy().into_owned(),
            supported_versions: services.iter().copied().map(str::to_owned).collect(),
        };
        metrics.registered(driver, node, false);
        Self { driver, info, node: node.to_owned(), registration, metrics }
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
        self.metrics.registered(self.driver, &self.node, status.plugin_registered);
        if status.plugin_registered {
            tracing::info!(node = %self.node, driver = self.driver.name(), "the kubelet has registered the driver");
            self.registration.set(None);
        } else {
            tracing::error!(node = %self.node, driver = self.driver.name(), error = %status.error, "the kubelet refused the driver");
            self.registration.set(Some(&status.error));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}

#[cfg(test)]
mod tests;
