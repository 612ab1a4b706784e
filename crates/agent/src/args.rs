//! The command line of `octavo agent`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use octavo_api::config::OverflowPolicy;
use octavo_api::imex::{ImexIsolation, ImexMode};
use octavo_kube_io::admin::{AdminAddress, MetricsAccess};

use octavo_enforcement::backend::MemoryEnforcement;
use octavo_node::HostMount;

use crate::config::{
    DynamicMig, FeatureLabels, GpuShares, ImexFile, MemorySwap, MigReset, Mode, NodeFile, Owner,
    RenamedSetting, SwapHostMemory, TimeEnforcement, WatchInterval,
};

/// Arguments of `octavo agent`.
#[derive(Clone, Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Without a subcommand the agent runs until SIGTERM or SIGINT.

Examples:
  octavo agent --config /etc/octavo/agent.yaml --admin-address :8080
  octavo agent --nodes /var/lib/lab/nodes         every <node>/agent.yaml in one process
  octavo agent inventory --output yaml            what this node has, as a machine description"
)]
pub struct AgentArgs {
    /// Subcommand to run instead of the agent.
    #[command(subcommand)]
    pub(crate) command: Option<AgentCommand>,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// Subcommands of `octavo agent`.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// Print this node's GPUs as the driver reports them
    Inventory(InventoryArgs),
}

/// Arguments of the running agent.
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// Run every DIR/<node>/agent.yaml in this process
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    pub(crate) nodes: Option<PathBuf>,

    /// Serve health checks and metrics at ADDRESS:PORT, :PORT, or none; port 0 selects a free port
    #[arg(long, value_name = "ADDRESS", default_value = "none")]
    pub(crate) admin_address: AdminAddress,

    /// Who may read metrics, which name claims and GPUs: everyone, or clients on the loopback, such as a
    /// port-forward. Health checks are for everyone
    #[arg(long, value_name = "everyone|loopback", default_value_t)]
    pub(crate) metrics_access: MetricsAccess,

    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

/// Settings of one node. Each is also a key of the config file.
#[derive(Clone, Debug, Args)]
pub(crate) struct NodeArgs {
    /// Read settings from FILE; flags go before it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Name of this node in the API
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,

    /// Distinguishes this agent from the one it replaces on its node: the pod's UID
    #[arg(long, value_name = "ID", env = "POD_UID")]
    instance_id: Option<String>,

    /// Kubeconfig to use instead of the pod's service account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Root of the driver's installation on the host [default: /]
    #[arg(long, value_name = "DIR")]
    driver_root: Option<PathBuf>,

    /// The driver's root as the agent sees it [default: the path on the host]
    #[arg(long, value_name = "DIR")]
    driver_root_seen: Option<PathBuf>,

    /// The proc file system [default: /proc]
    #[arg(long, value_name = "DIR")]
    proc_root: Option<PathBuf>,

    /// The sys file system [default: /sys]
    #[arg(long, value_name = "DIR")]
    sys_root: Option<PathBuf>,

    /// The kubelet's root, at the same path for host and agent [default: /var/lib/kubelet]
    #[arg(long, value_name = "DIR")]
    kubelet_root: Option<PathBuf>,

    /// Folder of device plugins' sockets, at the same path for host and agent [default: /var/lib/kubelet/device-plugins]
    #[arg(long, value_name = "DIR")]
    device_plugin_root: Option<PathBuf>,

    /// Folder of CDI specs [default: /var/run/cdi]
    #[arg(long, value_name = "DIR")]
    cdi_root: Option<PathBuf>,

    /// Folder that is empty after each boot, at the same path for host and agent [default: /run]
    #[arg(long, value_name = "DIR")]
    run_root: Option<PathBuf>,

    /// Folder on the host into which the program of CDI hooks is written [default: none; hooks run this program]
    #[arg(long, value_name = "DIR")]
    hook_dir: Option<PathBuf>,

    /// The same folder as it is seen here [default: the path on the host]
    #[arg(long, value_name = "DIR")]
    hook_dir_seen: Option<PathBuf>,

    /// The driver's libnvidia-ml.so.1 [default: searched under the driver's root]
    #[arg(long, value_name = "FILE")]
    driver_library: Option<PathBuf>,

    /// The kernel's log, /dev/kmsg or a file with a copy of it, for XIDs that the driver does not report [default: none]
    #[arg(long, value_name = "FILE")]
    kernel_log: Option<PathBuf>,

    /// Give the files of each share a file system of their own, so that a container cannot fill the run folder [default:
    /// false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    share_tmpfs: Option<bool>,

    /// GPUs that MIG partitions on demand: all, none, or minor numbers, UUIDs or PCI addresses as in
    /// 0,3. The node's label octavo.dev/dynamic-mig takes precedence [default: none]
    #[arg(long, value_name = "GPUS")]
    dynamic_mig: Option<DynamicMig>,

    /// The only scheduler that allocates this node's devices, by its name in spec.schedulerName. The node's label
    /// octavo.dev/scheduler takes precedence [default: any scheduler]
    #[arg(long, value_name = "SCHEDULER")]
    owner: Option<Owner>,

    /// How this node offers its GPUs: dra, in slices for claims, or device-plugin, as resources such as nvidia.com/gpu. The
    /// node's label octavo.dev/mode takes precedence [default: dra]
    #[arg(long, value_name = "MODE")]
    mode: Option<Mode>,

    /// Where the labels of GPU feature discovery are written: none, node for the Node object, or config for what the device
    /// plugin's config says [default: none]
    #[arg(long, value_name = "PLACE")]
    feature_labels: Option<FeatureLabels>,

    /// The node's label nvidia.com/mig.config decides its MIG devices [default: off]
    #[arg(long)]
    mig_manager: bool,

    /// File with layouts of MIG devices, in the form of mig-parted. Layouts that need no file, such as all-balanced, are always
    /// known
    #[arg(long, value_name = "FILE")]
    mig_config_file: Option<PathBuf>,

    /// What is reset for a change of MIG mode on GPUs before Hopper, once nothing uses it: gpu, or none, where people do it
    /// [default: gpu]
    #[arg(long, value_name = "WHAT")]
    mig_reset: Option<MigReset>,

    /// The cgroup hierarchy [default: fs/cgroup of the sys file system]
    #[arg(long, value_name = "DIR")]
    cgroup_root: Option<PathBuf>,

    /// How claims share a GPU: memory, a number of equal shares, or unlimited [default: memory]
    #[arg(long, value_name = "SHARES")]
    gpu_shares: Option<GpuShares>,

    /// Memory enforcement of shares: auto, guard, driver or off [default: auto]
    #[arg(long, value_name = "BACKEND")]
    memory_enforcement: Option<MemoryEnforcement>,

    /// How shares are held to their part of a GPU's time: off, or leases for processes with a guard [default: off]
    #[arg(long, value_name = "ENFORCEMENT")]
    time_enforcement: Option<TimeEnforcement>,

    /// How shares with a memoryLimit above their request give memory back that others need: off, which refuses them, or processes,
    /// which are moved to the host's memory. Needs --time-enforcement leases and the guard [default: off]
    #[arg(long, value_name = "SWAP")]
    memory_swap: Option<MemorySwap>,

    /// Memory of the host that swapped processes may take together, as in 256Gi [default: half of it]
    #[arg(long, value_name = "QUANTITY")]
    swap_host_memory: Option<SwapHostMemory>,

    /// Namespace whose shares are prepared without enforcement of memory and time; repeatable
    #[arg(long = "exempt-namespace", value_name = "NAMESPACE")]
    exempt_namespaces: Vec<String>,

    /// The weakest overflow policy that a share can have: Report, Hold, Freeze or Kill [default: Kill]
    #[arg(long, value_name = "POLICY")]
    min_overflow_policy: Option<OverflowPolicy>,

    /// The former name of --memory-enforcement, refused
    #[arg(
        long,
        hide = true,
        num_args = 0..=1,
        default_missing_value = "",
        value_parser = RenamedSetting::flag
    )]
    wall: Option<RenamedSetting>,

    /// Host path that every container with a GPU gets, as HOST:CONTAINER or HOST:CONTAINER:rw; repeatable
    #[arg(long = "mount", value_name = "MOUNT")]
    mounts: Vec<HostMount>,

    /// Interval between checks of shares, while there are any, as in 200ms or 1s [default: 200ms]
    #[arg(long, value_name = "TIME")]
    watch_interval: Option<WatchInterval>,

    /// Be the driver of ComputeDomains, too: channels and daemons for GPUs of several nodes [default: false]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    compute_domains: Option<bool>,

    /// Namespace in which daemons of ComputeDomains run [default: that of the service account or kubeconfig]
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE")]
    daemon_namespace: Option<String>,

    /// Who runs the IMEX services of ComputeDomains: driverManaged for daemons of the controller, or hostManaged for
    /// services of the hosts. The controller needs the same [default: driverManaged]
    #[arg(long, value_name = "MODE")]
    imex_mode: Option<ImexMode>,

    /// What keeps the memory of two ComputeDomains apart: domain for an IMEX domain each, or channel for a channel each in
    /// that of their NVLink clique. The controller needs the same [default: domain]
    #[arg(long, value_name = "ISOLATION")]
    imex_isolation: Option<ImexIsolation>,

    /// Socket for commands to the host's IMEX service, as it is called there; for hostManaged only [default:
    /// /etc/nvidia-imex/imex_ctrl.sock]
    #[arg(long, value_name = "PATH")]
    imex_host_socket: Option<PathBuf>,
}

/// Arguments of `octavo agent inventory`.
#[derive(Clone, Debug, Args)]
pub(crate) struct InventoryArgs {
    /// Output format; yaml is a machine description, from which the lab can simulate this node
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    pub(crate) output: InventoryForm,

    /// Name of the machine description
    #[arg(long, value_name = "NAME", default_value = "this-machine")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) node: NodeArgs,
}

/// Forms in which an inventory is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum InventoryForm {
    /// A line for each GPU.
    #[default]
    Table,
    /// A machine description.
    Yaml,
    /// A machine description.
    Json,
}

impl NodeArgs {
    /// The flags as settings.
    pub(crate) fn settings(&self) -> NodeFile {
        let Self {
            config: _,
            node_name,
            instance_id,
            kubeconfig,
            driver_root,
            driver_root_seen,
            proc_root,
            sys_root,
            kubelet_root,
            device_plugin_root,
            cdi_root,
            run_root,
            hook_dir,
            hook_dir_seen,
            driver_library,
            kernel_log,
            share_tmpfs,
            dynamic_mig,
            owner,
            mode: node_mode,
            feature_labels,
            mig_manager,
            mig_config_file,
            mig_reset,
            cgroup_root,
            gpu_shares,
            memory_enforcement,
            time_enforcement,
            memory_swap,
            swap_host_memory,
            exempt_namespaces,
            min_overflow_policy,
            wall: _,
            mounts,
            watch_interval,
            compute_domains,
            daemon_namespace,
            imex_mode: mode,
            imex_isolation: isolation,
            imex_host_socket: host_socket_path,
        } = self.clone();
        let imex = ImexFile { mode, isolation, host_socket_path };
        let exempt = (!exempt_namespaces.is_empty())
            .then(|| exempt_namespaces.into_iter().collect::<BTreeSet<_>>());
        NodeFile {
            node_name,
            instance_id,
            kubeconfig,
            driver_root,
            driver_root_seen,
            proc_root,
            sys_root,
            kubelet_root,
            device_plugin_root,
            cdi_root,
            run_root,
            hook_dir,
            hook_dir_seen,
            driver_library,
            kernel_log,
            share_tmpfs,
            dynamic_mig,
            owner,
            mode: node_mode,
            // A file's alone: it has a folder and a list.
            device_plugin: None,
            feature_labels,
            mig_manager: mig_manager.then_some(true),
            mig_config_file,
            mig_reset,
            cgroup_root,
            gpu_shares,
            memory_enforcement,
            time_enforcement,
            memory_swap,
            swap_host_memory,
            exempt_namespaces: exempt,
            min_overflow_policy,
            wall: None,
            mounts: (!mounts.is_empty()).then_some(mounts),
            watch_interval,
            compute_domains,
            daemon_namespace,
            imex: (imex != ImexFile::default()).then_some(imex),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::GpuName;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        args: AgentArgs,
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Program::command().debug_assert();
    }

    #[test]
    fn a_folder_of_nodes_and_one_node_exclude_each_other() {
        let parse = |args: &[&str]| {
            Program::try_parse_from([&["octavo"], args].concat()).map(|program| program.args)
        };
        assert!(parse(&["--nodes", "/n", "--config", "/c"]).is_err());
        assert!(parse(&["--admin-address", "8080"]).is_err());
        let run = parse(&["--config", "/c", "--cdi-root", "/cdi", "--admin-address", ":0"]);
        assert_eq!(run.unwrap().run.node.settings().cdi_root, Some("/cdi".into()));
        let cut = parse(&["--dynamic-mig", "0,3"]).unwrap().run.node.settings().dynamic_mig;
        assert_eq!(cut, Some(DynamicMig::Gpus([0, 3].map(GpuName::Minor).into())));
        assert!(parse(&["--dynamic-mig", "some"]).is_err());
        let owned = parse(&["--owner", "octavo"]).unwrap().run.node.settings().owner;
        assert_eq!(owned.unwrap().scheduler(), Some("octavo"));
        let enforcement = parse(&["--memory-enforcement", "guard"]).unwrap().run.node.settings();
        assert_eq!(enforcement.memory_enforcement, Some(MemoryEnforcement::Guard));
        let host = ["--imex-mode", "hostManaged", "--imex-host-socket", "/s"];
        let imex = parse(&host).unwrap().run.node.settings().imex.unwrap();
        assert_eq!((imex.mode, imex.isolation), (Some(ImexMode::HostManaged), None));
        assert_eq!(imex.host_socket_path, Some("/s".into()));
        assert!(parse(&["--imex-isolation", "channels"]).is_err());
        let inventory = parse(&["inventory", "-o", "yaml", "--sys-root", "/s"]).unwrap();
        assert!(matches!(
            inventory.command,
            Some(AgentCommand::Inventory(InventoryArgs { output: InventoryForm::Yaml, .. }))
        ));
    }

    #[test]
    fn renamed_flag_is_refused_with_its_new_name() {
        for args in [["octavo", "--wall=off"].as_slice(), &["octavo", "--wall"]] {
            let error = Program::try_parse_from(args).unwrap_err().to_string();
            assert!(error.contains("--memory-enforcement"), "{error}");
        }
        let help = <Program as clap::CommandFactory>::command().render_long_help().to_string();
        assert!(!help.contains("--wall"), "{help}");
    }
}
