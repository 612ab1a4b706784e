//! The command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use octavo_view::connect::{ConnectArgs, Timeout, parse_timeout};
use octavo_view::output::Format;

use crate::report::Component;

/// Folder in which operands of NVIDIA's GPU Operator await the status files.
const STATUS_DIR: &str = "/run/nvidia/validations";

/// Arguments of `octavo validate`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ValidateArgs {
    /// Where to check: here, or without a subcommand on nodes of the cluster
    #[command(subcommand)]
    pub command: Option<ValidateCommand>,
    /// Only these nodes [default: all nodes with GPUs]
    #[arg(value_name = "NODE")]
    pub nodes: Vec<String>,
    /// Namespace of the Jobs; it must admit privileged pods [default: that of the agents]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Image of the Jobs, with octavo in it [default: that of the agents]
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// The driver's root on the nodes [default: that of the agents, or /]
    #[arg(long, value_name = "FOLDER")]
    pub driver_root: Option<PathBuf>,
    /// Runtime class of the pod with a GPU, such as nvidia where the device plugin's config asks for `envvar`
    #[arg(long, value_name = "NAME")]
    pub runtime_class: Option<String>,
    /// Time for the Jobs of one node, or 0 for no limit
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_timeout)]
    pub timeout: Timeout,
    /// How long a pod may wait for a free GPU, or 0 for as long as --timeout says
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_timeout)]
    pub gpu_timeout: Timeout,
    /// Which files are written on the nodes
    #[command(flatten)]
    pub files: StatusFileArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    pub output: Format,
    /// Which cluster
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Where to check.
#[derive(Clone, Debug, Subcommand)]
pub enum ValidateCommand {
    /// Check this node, in a pod on it or by hand
    #[command(after_help = "\
Components, in their order; after a failure the later ones are not tried:
  driver   the management library loads from the driver's root and lists the GPUs, none is lost, and
           their device nodes exist
  toolkit  the container runtime gave this container a GPU: device nodes, and the driver's libraries
           where the loader finds them. Only a pod with a GPU shows it; elsewhere it is not tried
  cuda     a CUDA context, memory, and data that comes back from each GPU as it was
  plugin   ResourceSlices or the kubelet offer GPUs of this node; the API server is asked

Each component that is ready has a status file, such as driver-ready, for which operands of NVIDIA's GPU
Operator wait. The files of the checked components are removed first. driver-ready has the variables
IS_HOST_DRIVER, NVIDIA_DRIVER_ROOT, DRIVER_ROOT_CTR_PATH, NVIDIA_DEV_ROOT and DEV_ROOT_CTR_PATH.

Exit codes: 0 all is ready, 1 a component failed, 2 wrong usage, 3 none failed, and one was not tried.

Examples:
  octavo validate node driver                               on a host with NVIDIA's driver
  octavo validate node driver --driver-root /run/nvidia/driver --driver-root-seen /driver-root --wait 10m
  octavo validate node toolkit cuda                         in a container with a GPU")]
    Node(Box<NodeArgs>),
}

/// Arguments of `octavo validate node`.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// What to check [default: all]
    #[arg(value_enum, value_name = "COMPONENT")]
    pub components: Vec<Component>,
    /// The driver's root on the host
    #[arg(long, value_name = "FOLDER", default_value = "/")]
    pub driver_root: PathBuf,
    /// The same folder as this process sees it [default: the path on the host]
    #[arg(long, value_name = "FOLDER")]
    pub driver_root_seen: Option<PathBuf>,
    /// Name of this node in the API
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node_name: Option<String>,
    /// How long to repeat a check that fails
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = parse_timeout)]
    pub wait: Timeout,
    /// What the node offers, if it is known: the API server is not asked then
    #[arg(long, hide = true, value_name = "TEXT")]
    pub offered: Option<String>,
    /// File for the results in JSON, such as a container's termination message
    #[arg(long, hide = true, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Which files are written
    #[command(flatten)]
    pub files: StatusFileArgs,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    pub output: Format,
    /// Which cluster
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// Which status files are written.
#[derive(Args, Clone, Debug)]
pub struct StatusFileArgs {
    /// Folder of the status files on the node
    #[arg(long, value_name = "FOLDER", default_value = STATUS_DIR)]
    pub status_dir: PathBuf,
    /// Neither write nor remove status files
    #[arg(long, conflicts_with = "status_dir")]
    pub no_status_files: bool,
}

impl StatusFileArgs {
    /// The folder; `None`: no files.
    pub(crate) fn folder(&self) -> Option<&std::path::Path> {
        (!self.no_status_files).then_some(self.status_dir.as_path())
    }
}
