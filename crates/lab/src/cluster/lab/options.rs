//! What an `up` asks for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use octavo_api::imex::ImexSettings;

use crate::cli::progress::Progress;
use crate::cluster::add_ons::AddOns;
use crate::cluster::component::Component;
use crate::nodes::dynamic_mig::DynamicMig;
use crate::nodes::nodeset::NodeSet;
use crate::nodes::owner::Owners;
use crate::real_node::RealNodeKind;
use crate::real_node::set::RealNodeSet;

/// Options of `up`.
#[derive(Debug)]
pub struct UpOptions {
    /// State folder; created if missing.
    pub state_dir: PathBuf,
    /// The simulated nodes. `None`: the default, or the nodes of a running lab.
    pub nodes: Option<NodeSet>,
    /// The real nodes. `None`: none, or the real nodes of a running lab.
    pub real_nodes: Option<RealNodeSet>,
    /// What the real nodes are. `None`: the default, or what those of a running lab are.
    pub real_node_kind: Option<RealNodeKind>,
    /// GPUs opted in to dynamic MIG. `None`: the default, or those of a running lab.
    pub dynamic_mig: Option<DynamicMig>,
    /// Owners of the nodes. `None`: the default, or those of a running lab.
    pub owners: Option<Owners>,
    /// Whether to run Octavo's scheduler. `None`: if the binary has one.
    pub scheduler: Option<bool>,
    /// Keys of the scheduler's config file; they override the lab's.
    pub scheduler_config: Option<serde_json::Value>,
    /// Whether to run Octavo's controller, with agents that are drivers of `ComputeDomains`. `None`: if the binary has one
    /// and a node has a fabric of several nodes. Beside the scheduler it deletes members of gangs on lost nodes, as in the
    /// chart, unless `scheduler_config` has `repairBy: Scheduler`.
    pub controller: Option<bool>,
    /// Keys of the section `translation` in the controller's config file; they override the lab's. `None`: no webhook for pods of
    /// HAMi and KAI Scheduler.
    pub translation: Option<serde_json::Value>,
    /// Who runs the IMEX services of simulated nodes, what keeps domains apart, and whether they encrypt. `None`: the default,
    /// or as in a running lab.
    pub imex: Option<ImexSettings>,
    /// Whether pods of real nodes have a name server. `None`: if the operator of `MPIJobs` needs it, or as in a running lab.
    pub dns: Option<bool>,
    /// Whether to run the operator of `MPIJobs`. `None`: no, or as in a running lab.
    pub mpi_operator: Option<bool>,
    /// Additional process arguments, which override the lab's own.
    pub more_args: BTreeMap<Component, Vec<String>>,
    /// The `octavo` binary for agents and kubelets.
    pub octavo: PathBuf,
    /// The simulated driver library. `None`: search beside `octavo`.
    pub fake_driver: Option<PathBuf>,
    /// Whether to run the agents; without them no slices are published.
    pub agents: bool,
    /// Whether to run the simulated kubelets; without them no node becomes Ready.
    pub kubelets: bool,
    /// Whether the lab ends with this process, however the process ends. Tests and benchmarks set
    /// it; otherwise the lab stays up until `down`. Ignored if the lab is already up.
    pub stops_with_parent: bool,
    /// Longest wait for the nodes.
    pub ready_timeout: Duration,
    /// Destination of progress messages.
    pub progress: Progress,
}

impl UpOptions {
    /// A whole lab with the default nodes and silent progress.
    pub fn new(state_dir: impl Into<PathBuf>, octavo: impl Into<PathBuf>) -> Self {
        Self {
            state_dir: state_dir.into(),
            nodes: None,
            real_nodes: None,
            real_node_kind: None,
            dynamic_mig: None,
            owners: None,
            scheduler: None,
            scheduler_config: None,
            controller: None,
            translation: None,
            imex: None,
            dns: None,
            mpi_operator: None,
            more_args: BTreeMap::new(),
            octavo: octavo.into(),
            fake_driver: None,
            agents: true,
            kubelets: true,
            stops_with_parent: false,
            ready_timeout: Duration::from_mins(3),
            progress: Progress::silent(),
        }
    }

    /// The control plane and Octavo's objects alone: no simulated nodes, agents or kubelets.
    /// Kubernetes' own scheduler is the only one.
    pub fn control_plane_only(state_dir: impl Into<PathBuf>, octavo: impl Into<PathBuf>) -> Self {
        Self {
            nodes: Some(NodeSet::none()),
            scheduler: Some(false),
            controller: Some(false),
            agents: false,
            kubelets: false,
            ..Self::new(state_dir, octavo)
        }
    }

    /// The processes to start. Agents are included only if there are simulated nodes.
    pub(super) fn components(
        &self,
        has_nodes: bool,
        has_real: bool,
        (scheduler, controller): (bool, bool),
        add_ons: AddOns,
    ) -> Vec<Component> {
        let wanted = |component: &Component| match component {
            Component::Registry => has_real,
            Component::OctavoScheduler => scheduler,
            Component::OctavoController => controller,
            Component::Coredns => add_ons.name_server,
            Component::MpiOperator => add_ons.mpi_operator,
            Component::Kubelets => self.kubelets,
            Component::Agents => self.agents && has_nodes,
            _ => true,
        };
        Component::ALL.into_iter().filter(wanted).collect()
    }
}
