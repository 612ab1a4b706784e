//! The controller's command line and config file.
//!
//! The file is YAML with keys in camelCase. Unknown keys are errors. Missing keys have the defaults of [`Config::default`].

#[cfg(test)]
mod tests;
mod translation;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use octavo_api::imex::{ImexConflict, ImexMode, ImexServices, ImexSettings};
use octavo_kube_io::admin::{AdminAddress, MetricsAccess};
use octavo_kube_io::lease::LeaseOptions;
use serde::{Deserialize, Serialize};

pub use translation::{ModelConfig, TranslationConfig};

/// Most nodes of an IMEX domain that drivers support.
const MAX_NODES_PER_IMEX_DOMAIN: u32 = 18;

/// Options of `octavo controller`.
#[derive(Args, Clone, Debug)]
pub struct ControllerArgs {
    /// Kubeconfig of the cluster [default: that of the environment, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Config file (YAML): namespace, image of the daemons, leader election
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address for health and metrics: ADDRESS:PORT, :PORT for all addresses, port 0 for a free one, or none
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9479")]
    pub metrics_listen: AdminAddress,
    /// Who may read all but health there: everyone, or clients on the loopback, such as a port-forward
    #[arg(long, value_name = "everyone|loopback", default_value_t)]
    pub metrics_access: MetricsAccess,
    /// Namespace of the driver, unless the config file names it: that of daemons and cliques
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE")]
    pub namespace: Option<String>,
    /// Name of this process in the lease and in events [default: the host's name]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub identity: Option<String>,
}

/// The config file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// Namespace of the driver, for daemons and cliques. Empty: that of the command line.
    pub namespace: String,
    /// Whether `ComputeDomains` are served.
    pub compute_domains: bool,
    /// The daemons' pods.
    pub daemon: DaemonConfig,
    /// Most nodes of a clique in one domain: slots in the daemons' list of nodes.
    pub max_nodes_per_imex_domain: u32,
    /// Who runs the IMEX services, and what keeps domains apart.
    pub imex: ImexSettings,
    /// The webhook for pods of HAMi and KAI Scheduler.
    pub translation: TranslationConfig,
    /// The health of GPUs.
    pub health: HealthConfig,
    /// Which of several controllers is active.
    pub leader_election: LeaderElection,
}

/// The health of GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct HealthConfig {
    /// Whether `HealthPolicies` are served.
    pub enabled: bool,
    /// How gangs with members on lost nodes are repaired. Without it another program does so, such as the scheduler.
    pub repair: Option<RepairConfig>,
}

/// How gangs with members on lost nodes are repaired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RepairConfig {
    /// Seconds after which the members are deleted, to be made again; at least 1.
    pub after_seconds: u64,
    /// `spec.schedulerName` of the members.
    pub scheduler_name: String,
}

/// The daemons' pods.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DaemonConfig {
    /// Their image. It must be set.
    pub image: String,
    /// When the image is pulled; empty: Kubernetes' default.
    pub image_pull_policy: String,
    /// Secrets for the image.
    pub image_pull_secrets: Vec<PullSecret>,
    /// What they may use. Requests equal limits, so that memory pressure of others evicts no daemon.
    pub resources: Resources,
    /// `RUST_LOG`.
    pub log_level: String,
    /// Their service account.
    pub service_account_name: String,
    /// Their program.
    pub command: Vec<String>,
    /// Their priority.
    pub priority_class_name: String,
}

/// A secret for an image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PullSecret {
    /// Its name.
    pub name: String,
}

/// Requests and limits of a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Resources {
    /// Requests by resource.
    pub requests: BTreeMap<String, String>,
    /// Limits by resource.
    pub limits: BTreeMap<String, String>,
}

/// Which of several controllers is active.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Whether several controllers may run. If not, leader election is off and only one may run.
    pub enabled: bool,
    /// Namespace of the lease; empty: that of the driver.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Seconds that others wait for a renewal.
    pub lease_seconds: u64,
    /// Seconds after its last renewal for which a leader still counts itself as leader.
    pub renew_deadline_seconds: u64,
    /// Seconds between renewals.
    pub retry_seconds: u64,
}

/// Why a config cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the config file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The file's content is invalid.
    #[error("the config file {path} cannot be used: {message}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Where and what.
        message: String,
    },
    /// A setting is missing or wrong.
    #[error("{0}")]
    Setting(&'static str),
    /// Two settings exclude each other.
    #[error(transparent)]
    Imex(#[from] ImexConflict),
    /// A GPU model of the webhook is not valid.
    #[error("`translation.models`: {0}")]
    Models(#[from] octavo_migration::ModelsError),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            namespace: String::new(),
            compute_domains: true,
            daemon: DaemonConfig::default(),
            max_nodes_per_imex_domain: MAX_NODES_PER_IMEX_DOMAIN,
            imex: ImexSettings::default(),
            translation: TranslationConfig::default(),
            health: HealthConfig::default(),
            leader_election: LeaderElection::default(),
        }
    }
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self {
            image: String::new(),
            image_pull_policy: String::new(),
            image_pull_secrets: Vec::new(),
            resources: Resources::default(),
            log_level: "info".to_owned(),
            service_account_name: "octavo-imex-daemon".to_owned(),
            command: ["octavo", "imex-daemon"].map(str::to_owned).to_vec(),
            priority_class_name: "system-node-critical".to_owned(),
        }
    }
}

impl Default for Resources {
    fn default() -> Self {
        // nvidia-imex and the daemon in one container: running out of memory would end the imports of a job.
        let amounts = [("cpu", "100m"), ("memory", "128Mi")];
        let amounts = amounts.map(|(name, amount)| (name.to_owned(), amount.to_owned()));
        let amounts = BTreeMap::from(amounts);
        Self { requests: amounts.clone(), limits: amounts }
    }
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            enabled: true,
            namespace: String::new(),
            name: "octavo-controller".to_owned(),
            lease_seconds: 15,
            renew_deadline_seconds: 10,
            retry_seconds: 2,
        }
    }
}

impl Config {
    /// Reads a config file; `None` gives the defaults. `namespace` is that of the command line.
    pub fn read(path: Option<&Path>, namespace: Option<&str>) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        if let Some(path) = path {
            let text = std::fs::read_to_string(path)
                .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
            if !text.trim().is_empty() {
                config = serde_saphyr::from_str(&text).map_err(|error| ConfigError::Invalid {
                    path: path.to_owned(),
                    message: error.to_string(),
                })?;
            }
        }
        if config.namespace.is_empty() {
            namespace.unwrap_or_default().clone_into(&mut config.namespace);
        }
        config.check().map_err(ConfigError::Setting)?;
        config.imex.services()?;
        config.translation.models()?;
        Ok(config)
    }

    /// The IMEX services. A config that was read has no conflict.
    pub fn services(&self) -> ImexServices {
        self.imex.services().unwrap_or_default()
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.namespace.is_empty() {
            return Err("the namespace of the driver is not known: set `namespace` in the config \
                 file, --namespace, or the variable POD_NAMESPACE");
        }
        if !self.compute_domains && !self.translation.enabled && !self.health.enabled {
            return Err("`computeDomains`, `translation.enabled` and `health.enabled` are all \
                 false: there is nothing to do");
        }
        if self.health.repair.as_ref().is_some_and(|repair| repair.after_seconds == 0) {
            return Err("`health.repair.afterSeconds` is 0, but it must be at least 1: leave \
                 `health.repair` out if lost nodes are to be left alone");
        }
        self.translation.check()?;
        if !self.compute_domains {
            return Ok(());
        }
        if self.daemon.image.is_empty() && self.imex.mode == ImexMode::DriverManaged {
            return Err("`daemon.image` is not set in the config file: it is the image of the \
                 domains' daemons, such as that of this program");
        }
        if self.daemon.command.is_empty() {
            return Err("`daemon.command` is empty: it is the program of the domains' daemons, \
                 [\"octavo\", \"imex-daemon\"] by default");
        }
        if self.max_nodes_per_imex_domain == 0 {
            return Err("`maxNodesPerImexDomain` is 0, but it must be at least 1");
        }
        Ok(())
    }

    /// Options of the lease. The address is that of the admin server, if this process is no pod.
    pub(crate) fn lease(&self, identity: &str, address: Option<String>) -> LeaseOptions {
        let election = &self.leader_election;
        let namespace = Some(&election.namespace).filter(|namespace| !namespace.is_empty());
        LeaseOptions {
            address,
            duration: Duration::from_secs(election.lease_seconds),
            renew_deadline: Duration::from_secs(election.renew_deadline_seconds),
            retry: Duration::from_secs(election.retry_seconds),
            ..LeaseOptions::new(namespace.unwrap_or(&self.namespace), &election.name, identity)
        }
    }
}
