//! The command line of `octavo lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use octavo_api::imex::{ImexIsolation, ImexMode, ImexSettings};

use crate::cli::gpu::GpuAction;
use crate::cli::imex::ImexFaults;
use crate::cluster::component::Component;
use crate::nodes::dynamic_mig::DynamicMig;
use crate::nodes::nodeset::NodeSet;
use crate::nodes::owner::Owners;
use crate::real_node::set::RealNodeSet;
use crate::real_node::{RealNodeKind, RealProgram};

/// A real Kubernetes control plane with simulated GPU nodes, on this machine.
#[derive(Debug, Args)]
pub struct LabArgs {
    /// Folder for all files of the lab [default: octavo/lab in the user's state folder, else
    /// ~/.octavo/lab]
    #[arg(long, env = "OCTAVO_LAB_DIR", global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Start the lab, or start its ended programs again.
    Up(UpArgs),
    /// Stop every process of the lab and remove its files.
    Down(DownArgs),
    /// Show the lab's processes and nodes.
    Status(StatusArgs),
    /// Print the path of the administrator's kubeconfig.
    Kubeconfig,
    /// Run kubectl against the lab.
    #[command(disable_help_flag = true)]
    Kubectl(KubectlArgs),
    /// Make a simulated GPU fail, heal or report something.
    Gpu(GpuArgs),
    /// Change a node.
    Node(NodeArgs),
    /// Print the log of one of the lab's processes.
    Logs(LogsArgs),
    /// Apply the example manifests one by one, check the result of each, and delete them.
    Tour(TourArgs),
    /// Make GPUs fail and kill Octavo's programs at random on the running lab, and check that nothing is lost.
    ///
    /// Pods of a Deployment hold GPUs meanwhile. No GPU may be given twice, no pod killed whose GPU is well, and each fence is to end
    /// in a return after a test, or a retirement. The exit status is 1 if one of these does not hold.
    Chaos(ChaosArgs),
    /// Run the simulated kubelets of all nodes. Started by `up`.
    #[command(hide = true)]
    Kubelets,
    /// Serve the images of real nodes. Started by `up`.
    #[command(hide = true)]
    Registry,
    /// Wait until the process that brought the lab up has ended, then end the lab. Started by `up`.
    #[command(hide = true)]
    ParentWatch(ParentWatchArgs),
    /// Run a real node, as process 1 of namespaces of its own. Started by `up`.
    #[command(hide = true)]
    RealNode(RealNodeArgs),
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Machines and the number of nodes of each: names of shipped machines, or paths of YAML files
    /// [default: dgx-h100=2,dgx-a100-80=1,gb200-tray=2]
    #[arg(long, value_name = "MACHINE=COUNT,...")]
    pub(crate) nodes: Option<NodeSet>,
    /// GPUs whose MIG devices are made when claims ask for them: `all`, `none`, or minor numbers by
    /// node [default: none; the node label octavo.dev/dynamic-mig overrides it]
    #[arg(long, value_name = "all|none|NODE:GPU,...")]
    pub(crate) dynamic_mig: Option<DynamicMig>,
    /// Scheduler that assigns the nodes' devices: octavo, kube, or by machine MACHINE=OWNER,...
    /// [default: kube]. Octavo's nodes have the label octavo.dev/scheduler=octavo and a taint on
    /// every device
    #[arg(long, value_name = "octavo|kube|MACHINE=OWNER,...")]
    pub(crate) owner: Option<Owners>,
    /// Start Octavo's scheduler beside Kubernetes' own [default: if this binary contains it]
    #[arg(long, overrides_with = "no_scheduler")]
    pub(crate) scheduler: bool,
    /// Do not start Octavo's scheduler
    #[arg(long, overrides_with = "scheduler")]
    pub(crate) no_scheduler: bool,
    /// Start Octavo's controller, for ComputeDomains [default: if a node is in an NVLink fabric of several nodes]
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) controller: Option<bool>,
    #[command(flatten)]
    pub(crate) imex: ImexArgs,
    /// Real nodes besides the simulated ones, with a kubelet, containerd and the GPUs of a machine:
    /// COUNT or COUNT:MACHINE [default: 0; default machine: dgx-h100]. Needs root, runc, CNI
    /// plugins, iproute2, iptables and busybox-static
    #[arg(long, value_name = "COUNT[:MACHINE],...")]
    pub(crate) real_node: Option<RealNodeSet>,
    /// What a real node is: namespaces of this machine, or a virtual machine with Debian's kernel,
    /// systemd, cgroup version 2 alone and `AppArmor`, which needs qemu-system-x86, mmdebstrap,
    /// e2fsprogs and virtiofsd [default: namespaces]
    #[arg(long, requires = "real_node", value_name = "KIND")]
    pub(crate) real_node_kind: Option<RealNodeKind>,
    /// Start `CoreDNS`, so that pods of real nodes find Services and each other by name [default: with --mpi-operator]
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) dns: Option<bool>,
    /// Start Kubeflow's operator of `MPIJobs`. For real nodes an image with Open MPI and sshd is packed as well, which
    /// needs openmpi-bin, openssh-client and openssh-server of Debian [default: false]
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
        default_missing_value = "true"
    )]
    pub(crate) mpi_operator: Option<bool>,
    /// Simulated driver library [default: the one in the folder of this binary]
    #[arg(long, env = "OCTAVO_FAKE_DRIVER", value_name = "FILE")]
    pub(crate) fake_driver: Option<PathBuf>,
    /// Fail if the nodes are not ready after this time
    #[arg(long, default_value_t = 180, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// Start the control plane without simulated nodes, their kubelets and agents
    #[arg(long, conflicts_with = "nodes")]
    pub(crate) control_plane_only: bool,
}

impl UpArgs {
    /// The scheduler choice of the command line; `None` if neither flag is given.
    pub(crate) fn octavo_scheduler(&self) -> Option<bool> {
        match (self.scheduler, self.no_scheduler) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            (false, false) => None,
        }
    }
}

/// Settings for IMEX.
#[derive(Debug, Args)]
pub(crate) struct ImexArgs {
    /// Who runs `nvidia-imex` on simulated nodes: driverManaged, daemons of Octavo's controller; or hostManaged, you
    /// [default: driverManaged]
    #[arg(long = "imex-mode", value_name = "MODE")]
    mode: Option<ImexMode>,
    /// What keeps ComputeDomains apart: domain, an IMEX domain for each; or channel, a channel for each [default: domain]
    #[arg(long = "imex-isolation", value_name = "ISOLATION")]
    isolation: Option<ImexIsolation>,
    /// Let the daemons of ComputeDomains encrypt what they send to each other, with certificates of Octavo's controller
    #[arg(long = "imex-encryption")]
    encryption: bool,
}

impl ImexArgs {
    /// The settings for IMEX; `None` if none is given.
    pub(crate) fn settings(&self) -> Option<ImexSettings> {
        let is_given = self.mode.is_some() || self.isolation.is_some() || self.encryption;
        is_given.then(|| ImexSettings {
            mode: self.mode.unwrap_or_default(),
            isolation: self.isolation.unwrap_or_default(),
            encryption: self.encryption,
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct ParentWatchArgs {
    /// Number and start time of the process, as in a pid file
    pub(crate) parent: String,
}

#[derive(Debug, Args)]
pub(crate) struct RealNodeArgs {
    /// Name of the node
    pub(crate) name: String,
}

#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// Keep the logs in the state folder
    #[arg(long)]
    pub(crate) keep_logs: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = OutputForm::Table)]
    pub(crate) output: OutputForm,
}

/// Output format of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputForm {
    Table,
    Json,
    Yaml,
}

#[derive(Debug, Args)]
pub(crate) struct KubectlArgs {
    /// Arguments of kubectl
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub(crate) args: Vec<std::ffi::OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct GpuArgs {
    /// Name of the node
    pub(crate) node: String,
    /// Index of the GPU, as in nvidia-smi
    pub(crate) index: u32,
    #[command(subcommand)]
    pub(crate) action: GpuAction,
}

#[derive(Debug, Args)]
pub(crate) struct NodeArgs {
    /// Name of the node
    pub(crate) node: String,
    #[command(subcommand)]
    pub(crate) action: NodeAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeAction {
    /// Give the node a new boot id and empty the folders that a reboot empties. The kubelet and the
    /// agent of a simulated node keep running; a real node is killed and started again.
    Reboot,
    /// Unload the driver's kernel modules, as a driver upgrade does. Refused while a process uses
    /// the driver.
    UnloadDriver,
    /// Set the faults of the node's IMEX service; without a flag there are none.
    Imex(ImexFaults),
    /// Load the driver's kernel modules again.
    LoadDriver {
        /// Major number that the module nvidia-uvm gets [default: 508]
        #[arg(long, value_name = "NUMBER")]
        uvm_major: Option<u32>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The process: one of the control plane, kubelets or agents of the simulated nodes, or a
    /// program of a real node such as real-0/kubelet (kubelet, containerd, agent, node)
    pub(crate) process: LogSource,
    /// Print only this many lines from the end
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<usize>,
    /// Print new lines too, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
}

/// A process that writes a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LogSource {
    Component(Component),
    /// A real node and one of its programs.
    Real(String, String),
}

impl std::str::FromStr for LogSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let programs = || RealProgram::ALL.into_iter().map(RealProgram::name).chain(["node"]);
        if let Some((node, program)) = text.split_once('/') {
            return if programs().any(|known| known == program) {
                Ok(Self::Real(node.to_owned(), program.to_owned()))
            } else {
                let known: Vec<&str> = programs().collect();
                Err(format!("a real node has no {program}: write one of {}", known.join(", ")))
            };
        }
        let known = Component::ALL.into_iter().find(|component| component.name() == text);
        known.map(Self::Component).ok_or_else(|| {
            let known: Vec<&str> = Component::ALL.into_iter().map(Component::name).collect();
            format!("write one of {}, or NODE/PROGRAM of a real node", known.join(", "))
        })
    }
}

#[derive(Debug, Args)]
pub(crate) struct TourArgs {
    /// Folder of the example manifests
    #[arg(long, default_value = "examples", value_name = "DIR")]
    pub(crate) examples: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct ChaosArgs {
    /// Seed of faults and targets
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Number of faults
    #[arg(long, default_value_t = 100, value_name = "COUNT")]
    pub(crate) faults: usize,
    /// Mean time between two faults
    #[arg(long, default_value_t = 500, value_name = "MILLISECONDS")]
    pub(crate) interval: u64,
    /// Pods with a GPU each [default: two for three GPUs]
    #[arg(long, value_name = "COUNT")]
    pub(crate) pods: Option<usize>,
    /// Time after the last fault in which GPUs are to return and pods to run
    #[arg(long, default_value_t = 180, value_name = "SECONDS")]
    pub(crate) settle: u64,
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = OutputForm::Table)]
    pub(crate) output: OutputForm,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_one_of_a_component_or_of_a_part_of_a_real_node() {
        let parse = |text: &str| text.parse::<LogSource>();
        assert_eq!(parse("etcd"), Ok(LogSource::Component(Component::Etcd)));
        let kubelet = LogSource::Real("real-0".into(), "kubelet".into());
        assert_eq!(parse("real-0/kubelet"), Ok(kubelet));
        assert!(parse("real-0/etcd").unwrap_err().contains("containerd, kubelet, node"));
        assert!(parse("real-0").unwrap_err().contains("kube-apiserver"));
    }
}
