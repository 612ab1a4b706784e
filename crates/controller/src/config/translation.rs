//! Settings of the webhook.

use std::net::SocketAddr;

use octavo_kube_io::admin::AdminAddress;
use octavo_migration::{GpuModel, Models, ModelsError};
use serde::{Deserialize, Serialize};

use super::ConfigError;

const LISTEN: &str =
    "`translation.listen` is no address: write ADDRESS:PORT, or :PORT for all addresses";

/// The webhook for pods of HAMi and KAI Scheduler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TranslationConfig {
    /// Whether it is served.
    pub enabled: bool,
    /// Where: `ADDRESS:PORT`, or `:PORT` for all addresses.
    pub listen: String,
    /// Names and addresses by which the API server calls it: those of its certificate.
    pub hosts: Vec<String>,
    /// The Secret with its certificates, in the driver's namespace.
    pub secret_name: String,
    /// The `MutatingWebhookConfiguration`, whose `caBundle` is kept.
    pub webhook_name: String,
    /// Scheduler of translated pods; empty: Kubernetes' own.
    pub scheduler_name: String,
    /// GPU models besides those of `ResourceSlices`: of nodes that an autoscaler may add.
    pub models: Vec<ModelConfig>,
    /// Seconds that a claim template stays without a pod.
    pub collect_after_seconds: u64,
    /// Seconds for which it is served after SIGTERM: API servers may not know yet.
    pub drain_seconds: u64,
}

/// A GPU model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ModelConfig {
    /// Attribute `productName` of its devices.
    pub product_name: String,
    /// Capacity `memory` of its devices, such as `81559Mi`.
    pub memory: String,
}

impl Default for TranslationConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            listen: ":9443".to_owned(),
            hosts: Vec::new(),
            secret_name: "octavo-controller-webhook".to_owned(),
            webhook_name: "octavo-translation".to_owned(),
            scheduler_name: String::new(),
            models: Vec::new(),
            collect_after_seconds: 3600,
            drain_seconds: 5,
        }
    }
}

impl TranslationConfig {
    /// The models of the config.
    ///
    /// # Errors
    ///
    /// One has no name, an amount that is no quantity, or two amounts.
    pub fn models(&self) -> Result<Vec<GpuModel>, ModelsError> {
        let models = self.models.iter().map(|it| GpuModel::parse(&it.product_name, &it.memory));
        Ok(Models::new(models.collect::<Result<Vec<_>, _>>()?)?.as_slice().to_vec())
    }

    /// Where it listens.
    ///
    /// # Errors
    ///
    /// `listen` is no address.
    pub(crate) fn address(&self) -> Result<SocketAddr, ConfigError> {
        match self.listen.parse() {
            Ok(AdminAddress::Listen(address)) => Ok(address),
            Ok(AdminAddress::None) | Err(_) => Err(ConfigError::Setting(LISTEN)),
        }
    }

    pub(super) fn check(&self) -> Result<(), &'static str> {
        if !self.enabled {
            return Ok(());
        }
        if self.hosts.is_empty() || self.hosts.iter().any(String::is_empty) {
            return Err(
                "`translation.hosts` is empty: it has the names by which the API server calls the \
                 webhook, such as octavo-controller-webhook.octavo.svc",
            );
        }
        if !matches!(self.listen.parse(), Ok(AdminAddress::Listen(_))) {
            return Err(LISTEN);
        }
        if self.collect_after_seconds == 0 {
            return Err(
                "`translation.collectAfterSeconds` is 0, but a template has to stay until its pod is seen",
            );
        }
        Ok(())
    }
}
