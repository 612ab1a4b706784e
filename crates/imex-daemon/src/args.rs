//! The command line of `octavo imex-daemon`.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

/// Options of `octavo imex-daemon`.
#[derive(Args, Clone, Debug)]
pub struct ImexDaemonArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ImexDaemonCommand,
}

/// Commands of `octavo imex-daemon`.
#[derive(Clone, Debug, Subcommand)]
pub enum ImexDaemonCommand {
    /// Run nvidia-imex and keep this node's entry in its clique
    Run(Box<RunArgs>),
    /// Exit with 0 if nvidia-imex is ready, or if the node has no clique
    Check(CheckArgs),
}

/// Options that both commands have.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// NVLink clique of the node, CLUSTER.CLIQUE; empty or absent on a node without a fabric
    #[arg(long, value_name = "CLIQUE", env = "CLIQUE_ID")]
    pub clique_id: Option<String>,
    /// Folder of imexd.cfg and nodes.cfg
    #[arg(long, value_name = "FOLDER", env = "OCTAVO_IMEXD_FOLDER", default_value = "/imexd")]
    pub folder: PathBuf,
    /// The command that asks the service for its state
    #[arg(long, value_name = "PROGRAM", default_value = "nvidia-imex-ctl")]
    pub ctl_program: PathBuf,
    /// Folder with tls.key, tls.crt and ca.crt: nvidia-imex then speaks mutual TLS. The certificate
    /// needs the name of each node, compute-domain-daemon-0000 and so on
    #[arg(long, value_name = "FOLDER", env = "OCTAVO_TLS_FOLDER")]
    pub tls_folder: Option<PathBuf>,
}

/// Options of `octavo imex-daemon run`.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Options that `check` has too.
    #[command(flatten)]
    pub check: CheckArgs,
    /// Name of the node
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    pub node_name: String,
    /// Address of the pod, on which nvidia-imex listens
    #[arg(long, value_name = "ADDRESS", env = "POD_IP")]
    pub pod_ip: IpAddr,
    /// Namespace of the pod, and of the clique's object
    #[arg(long, value_name = "NAMESPACE", env = "POD_NAMESPACE")]
    pub pod_namespace: String,
    /// Most nodes of a clique; all daemons of a domain need the same
    #[arg(
        long, value_name = "NUMBER", env = "MAX_NODES_PER_IMEX_DOMAIN", default_value_t = 18,
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    pub max_nodes: u16,
    /// UID of the domain
    #[arg(long, value_name = "UID", env = "COMPUTE_DOMAIN_UUID")]
    pub domain_uid: Option<String>,
    /// Name of the domain, for logs
    #[arg(long, value_name = "NAME", env = "COMPUTE_DOMAIN_NAME")]
    pub domain_name: Option<String>,
    /// Namespace of the domain, for logs
    #[arg(long, value_name = "NAMESPACE", env = "COMPUTE_DOMAIN_NAMESPACE")]
    pub domain_namespace: Option<String>,
    /// File with the addresses of nodes' names
    #[arg(long, value_name = "FILE", env = "OCTAVO_HOSTS_FILE", default_value = "/etc/hosts")]
    pub hosts_file: PathBuf,
    /// The service
    #[arg(long, value_name = "PROGRAM", default_value = "nvidia-imex")]
    pub imex_program: PathBuf,
    /// Kubeconfig of the cluster [default: that of the environment, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Port of nvidia-imex for its peers
    #[arg(long, value_name = "PORT", default_value_t = 50_000)]
    pub server_port: u16,
    /// Port of nvidia-imex for nvidia-imex-ctl
    #[arg(long, value_name = "PORT", default_value_t = 50_005)]
    pub command_port: u16,
}

impl CheckArgs {
    /// The clique; `None` on a node without a fabric.
    pub(crate) fn clique(&self) -> Option<&str> {
        self.clique_id.as_deref().filter(|id| !id.is_empty())
    }

    /// The folder with the certificate; `None`: connections are plain.
    pub(crate) fn tls_folder(&self) -> Option<&Path> {
        self.tls_folder.as_deref().filter(|folder| !folder.as_os_str().is_empty())
    }

    /// The service's config file.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.folder.join("imexd.cfg")
    }

    /// The service's list of nodes.
    pub(crate) fn nodes_file(&self) -> PathBuf {
        self.folder.join("nodes.cfg")
    }
}
