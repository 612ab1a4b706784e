//! The command line of `octavo lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::component::Component;
use crate::gpu::GpuAction;
use crate::nodeset::NodeSet;

/// A real Kubernetes control plane with simulated GPU nodes, on this machine.
#[derive(Debug, Args)]
pub struct LabArgs {
    /// Folder with everything of the lab [default: octavo/lab in the user's state folder, else
    /// ~/.octavo/lab]
    #[arg(long, env = "OCTAVO_LAB_DIR", global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: LabCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Start the lab, or start again what has died of it.
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
    /// Do something to a simulated node.
    Node(NodeArgs),
    /// Print the log of one of the lab's processes.
    Logs(LogsArgs),
    /// Apply the example manifests one by one, check what each promises, and delete them.
    Tour(TourArgs),
    /// Run the simulated kubelets of all nodes. Started by `up`.
    #[command(hide = true)]
    Kubelets,
}

#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Machines and how many nodes of each: names that ship, or paths of YAML files [default:
    /// dgx-h100=2,dgx-a100-80=1,gb200-tray=2]
    #[arg(long, value_name = "MACHINE=COUNT,...")]
    pub(crate) nodes: Option<NodeSet>,
    /// The simulated driver library [default: the one beside this binary]
    #[arg(long, env = "OCTAVO_FAKE_DRIVER", value_name = "FILE")]
    pub(crate) fake_driver: Option<PathBuf>,
    /// Give up when the nodes are not ready after this time
    #[arg(long, default_value_t = 180, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// Start the control plane alone: no nodes, kubelets and agents
    #[arg(long, conflicts_with_all = ["nodes", "fake_driver"])]
    pub(crate) control_plane_only: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// Leave the logs in the state folder
    #[arg(long)]
    pub(crate) keep_logs: bool,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Form of the output
    #[arg(long, short, value_enum, default_value_t = OutputForm::Table)]
    pub(crate) output: OutputForm,
}

/// Form of what a command prints.
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
    /// Index of the GPU, as nvidia-smi counts
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
    /// Give the node a new boot id and empty what a reboot empties. Its kubelet and agent run on.
    Reboot,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The process
    #[arg(value_enum)]
    pub(crate) component: Component,
    /// Print this many lines from the end only
    #[arg(long, value_name = "LINES")]
    pub(crate) tail: Option<usize>,
    /// Go on printing what is added, until Ctrl-C
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TourArgs {
    /// Folder of the example manifests
    #[arg(long, default_value = "examples", value_name = "DIR")]
    pub(crate) examples: PathBuf,
}
