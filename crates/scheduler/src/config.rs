//! The scheduler's command line and config file.
//!
//! The file is YAML with keys in camelCase. Unknown keys are errors. Missing keys have the defaults
//! of [`Config::default`].

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use octavo_kube_io::admin::{AdminAddress, MetricsAccess};
use octavo_kube_io::lease::LeaseOptions;
use serde::{Deserialize, Serialize};

use crate::bind::BinderOptions;
use crate::state::{LevelConfig, SchedulerConfig};
use crate::status::ScheduledEvents;

/// Options of `octavo scheduler`.
#[derive(Args, Clone, Debug)]
pub struct SchedulerArgs {
    /// Kubeconfig of the cluster [default: that of the environment, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Config file (YAML): name, leader election, levels of the topology, preemption,
    /// defragmentation
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Address for health, metrics, `octavo explain` and `octavo snapshot`: ADDRESS:PORT, :PORT for
    /// all addresses, port 0 for a free one, or none. Its clients can read names and requests of all
    /// pods and nodes
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9477")]
    pub metrics_listen: AdminAddress,
    /// Who may read all but health there: everyone, or clients on the loopback, such as a port-forward
    #[arg(long, value_name = "everyone|loopback", default_value_t)]
    pub metrics_access: MetricsAccess,
    /// Name of this process in the lease and in events [default: the host's name]
    #[arg(long, value_name = "NAME", env = "POD_NAME")]
    pub identity: Option<String>,
}

/// The config file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Config {
    /// `spec.schedulerName` of the pods to place, and value of the label `octavo.dev/scheduler` of
    /// nodes whose devices are allocated here.
    pub scheduler_name: String,
    /// Which of several schedulers is active.
    pub leader_election: LeaderElection,
    /// Topology levels, widest first. Levels without a labelled node are left out.
    pub levels: Vec<LevelConfig>,
    /// Whether pods may be preempted for others of higher priority.
    pub preemption: bool,
    /// Whether running pods may be moved to make room.
    pub defragmentation: Defragmentation,
    /// Seconds after which members of gangs on a lost node are deleted, to be recreated; 0: never.
    pub repair_after_seconds: u64,
    /// Who deletes them.
    pub repair_by: RepairBy,
    /// Faults of a gang within `repairWindowSeconds` after which it comes back as a repair. After more of
    /// them it waits as a new gang does: no place is kept for it, and it gets no spare node.
    pub max_repairs: u32,
    /// Seconds for which a fault of a gang counts; 0: a gang is always repaired.
    pub repair_window_seconds: u64,
    /// Seconds before the start of a `Maintenance` from which on its nodes take only pods with GPUs
    /// that end or yield in time; 0: until its start they take any.
    pub maintenance_horizon_seconds: u64,
    /// Most concurrent writes of pods and claims.
    pub writes_in_flight: u32,
    /// Which bound pods get an event `Scheduled`.
    pub scheduled_events: ScheduledEvents,
    /// Decisions that are kept for `explain`.
    pub explanations: usize,
    /// Decisions on gangs that are kept with a snapshot of the cluster, for replay.
    pub records: usize,
    /// Decisions on single pods that are kept likewise.
    pub pod_records: usize,
}

/// Who deletes members of gangs on lost nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum RepairBy {
    /// The scheduler.
    #[default]
    Scheduler,
    /// Octavo's controller, within the budget of evictions of `HealthPolicies`. Its config has the seconds, too.
    Controller,
}

/// Which of several schedulers is active.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Whether several schedulers may run. If not, leader election is off and only one may run.
    pub enabled: bool,
    /// Namespace of the lease.
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

/// Whether running pods may be moved to make room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Defragmentation {
    /// Whether at all.
    pub enabled: bool,
    /// Most pods that are moved for one pod or gang.
    pub moves: u32,
    /// Seconds for which a place is kept for its next pod: the new place of a moved pod, and that of
    /// a member of a gang that left by a fault.
    pub hold_seconds: u64,
}

/// Why a config file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the config file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// Its content is invalid.
    #[error("the config file {path} cannot be used: {message}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Where and what.
        message: String,
    },
}

impl Default for Config {
    fn default() -> Self {
        let core = SchedulerConfig::default();
        Self {
            scheduler_name: core.scheduler_name,
            leader_election: LeaderElection::default(),
            levels: core.levels,
            preemption: core.preemption,
            defragmentation: Defragmentation::default(),
            repair_after_seconds: core.repair_after_seconds,
            repair_by: RepairBy::default(),
            max_repairs: core.max_repairs,
            repair_window_seconds: core.repair_window_seconds,
            maintenance_horizon_seconds: core.maintenance_horizon_seconds,
            writes_in_flight: BinderOptions::default().max_in_flight,
            scheduled_events: ScheduledEvents::default(),
            explanations: core.explanations,
            records: core.records,
            pod_records: core.pod_records,
        }
    }
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            enabled: true,
            namespace: "octavo-system".to_owned(),
            name: "octavo-scheduler".to_owned(),
            lease_seconds: 15,
            renew_deadline_seconds: 10,
            retry_seconds: 2,
        }
    }
}

impl Default for Defragmentation {
    fn default() -> Self {
        Self { enabled: false, moves: 16, hold_seconds: SchedulerConfig::default().hold_seconds }
    }
}

impl Config {
    /// Reads a config file; `None` gives the defaults.
    pub fn read(path: Option<&Path>) -> Result<Self, ConfigError> {
        let Some(path) = path else { return Ok(Self::default()) };
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let invalid = |message: String| ConfigError::Invalid { path: path.to_owned(), message };
        let config: Self =
            serde_saphyr::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        config.check().map_err(invalid)?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.scheduler_name.is_empty() || self.scheduler_name == "default-scheduler" {
            return Err(format!(
                "schedulerName is {:?}; it must be a name of its own, such as \"octavo\"",
                self.scheduler_name
            ));
        }
        if self.writes_in_flight == 0 {
            return Err("writesInFlight is 0, but it must be at least 1".to_owned());
        }
        if self.max_repairs == 0 {
            return Err("maxRepairs is 0, but it must be at least 1".to_owned());
        }
        let mut names: Vec<_> = self.levels.iter().map(|level| &level.name).collect();
        names.sort();
        names.dedup();
        if names.len() != self.levels.len() {
            return Err("levels: a name occurs twice".to_owned());
        }
        Ok(())
    }

    /// The part that the core needs.
    pub(crate) fn core(&self) -> SchedulerConfig {
        let repair_after_seconds = match self.repair_by {
            RepairBy::Scheduler => self.repair_after_seconds,
            RepairBy::Controller => 0,
        };
        let moves = if self.defragmentation.enabled { self.defragmentation.moves } else { 0 };
        SchedulerConfig {
            scheduler_name: self.scheduler_name.clone(),
            levels: self.levels.clone(),
            preemption: self.preemption,
            defragmentation_moves: moves,
            hold_seconds: self.defragmentation.hold_seconds,
            repair_after_seconds,
            max_repairs: self.max_repairs,
            repair_window_seconds: self.repair_window_seconds,
            maintenance_horizon_seconds: self.maintenance_horizon_seconds,
            explanations: self.explanations,
            records: self.records,
            pod_records: self.pod_records,
            ..SchedulerConfig::default()
        }
    }

    /// Options of the lease. The address is that of the admin server, if this process is no pod.
    pub(crate) fn lease(&self, identity: &str, address: Option<String>) -> LeaseOptions {
        let LeaderElection { namespace, name, .. } = &self.leader_election;
        let election = &self.leader_election;
        LeaseOptions {
            address,
            duration: Duration::from_secs(election.lease_seconds),
            renew_deadline: Duration::from_secs(election.renew_deadline_seconds),
            retry: Duration::from_secs(election.retry_seconds),
            ..LeaseOptions::new(namespace, name, identity)
        }
    }
}
