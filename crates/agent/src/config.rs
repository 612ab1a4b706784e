//! Configuration of the agent: command line and config files.
//!
//! The YAML config file of a node has the same settings as the flags, in camelCase. Flags take precedence over the
//! file, and the file over defaults. Unknown keys are errors.

mod device_plugin;
mod dynamic_mig;
mod feature_labels;
mod gpu_shares;
mod imex;
mod memory_swap;
mod mig_reset;
mod owner;
mod renamed_setting;
mod time_enforcement;
mod watch_interval;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use octavo_api::config::OverflowPolicy;
use serde::Deserialize;

use octavo_enforcement::backend::MemoryEnforcement;
use octavo_enforcement::swap::SwapSettings;
use octavo_node::files::is_plain_name;
use octavo_node::{HOOK_PROGRAM, HostMount, NodePaths};

use crate::node::DraDriver;

pub use device_plugin::{
    DevicePluginError, DevicePluginFile, DevicePluginSettings, Fallback, Mode, ModeError,
};
pub use dynamic_mig::{DynamicMig, DynamicMigError, GpuName};
pub use feature_labels::{FeatureLabels, FeatureLabelsError};
pub use gpu_shares::{GpuShares, GpuSharesError};
pub use imex::{Imex, ImexError, ImexFile};
pub use memory_swap::{
    MemorySwap, MemorySwapError, SwapConfigError, SwapHostMemory, SwapHostMemoryError,
};
pub use mig_reset::{MigReset, MigResetError};
pub use owner::{Owner, OwnerError};
pub use renamed_setting::RenamedSetting;
pub use time_enforcement::{TimeEnforcement, TimeEnforcementError};
pub use watch_interval::{WatchInterval, WatchIntervalError};

/// Settings of one node, as in its config file. Absent settings have the defaults of a real node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeFile {
    /// Name of the node in the API.
    pub node_name: Option<String>,
    /// Distinguishes this agent from others on its node during an upgrade; part of its socket names. Without it only
    /// one agent at a time can serve the kubelet.
    pub instance_id: Option<String>,
    /// The kubeconfig to use; absent: the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// The driver's root on the host. Default `/`.
    pub driver_root: Option<PathBuf>,
    /// The driver's root as the agent sees it. Default: the path on the host.
    pub driver_root_seen: Option<PathBuf>,
    /// The proc file system. Default `/proc`.
    pub proc_root: Option<PathBuf>,
    /// The sys file system. Default `/sys`.
    pub sys_root: Option<PathBuf>,
    /// The kubelet's root, at the same path for host and agent. Default `/var/lib/kubelet`.
    pub kubelet_root: Option<PathBuf>,
    /// Folder of device plugins' sockets, at the same path for host and agent. Default `/var/lib/kubelet/device-plugins`, whatever
    /// the kubelet's root is.
    pub device_plugin_root: Option<PathBuf>,
    /// Folder of CDI specs. Default `/var/run/cdi`.
    pub cdi_root: Option<PathBuf>,
    /// Folder that is empty after each boot, at the same path for host and agent. Default `/run`.
    pub run_root: Option<PathBuf>,
    /// Folder on the host into which the agent writes the program of CDI hooks. Default: none; hooks run this program.
    pub hook_dir: Option<PathBuf>,
    /// The same folder as the agent sees it. Default: the path on the host.
    pub hook_dir_seen: Option<PathBuf>,
    /// The driver's management library, `libnvidia-ml.so.1`. Default: searched under the driver's root.
    pub driver_library: Option<PathBuf>,
    /// The kernel's log, `/dev/kmsg` or a file with a copy of it, for XIDs that the driver does not report. Default: none.
    pub kernel_log: Option<PathBuf>,
    /// Whether the files of each share have a file system of their own, so that a container cannot fill the run folder.
    /// Needs root, and mounts that the host sees. Default `false`.
    pub share_tmpfs: Option<bool>,
    /// GPUs under dynamic MIG. Default: none. The node's label takes precedence.
    pub dynamic_mig: Option<DynamicMig>,
    /// The only scheduler that allocates this node's devices. Default: any. The node's label takes precedence.
    pub owner: Option<Owner>,
    /// How the node offers its GPUs. Default `dra`. The node's label takes precedence.
    pub mode: Option<Mode>,
    /// Settings of the device plugin. Default: those of NVIDIA's plugin, with CDI.
    pub device_plugin: Option<DevicePluginFile>,
    /// Where the labels of GPU feature discovery are written. Default `none`.
    pub feature_labels: Option<FeatureLabels>,
    /// Whether the node's label `nvidia.com/mig.config` decides its MIG devices. Default `false`.
    pub mig_manager: Option<bool>,
    /// File with layouts of MIG devices, in the form of mig-parted. Default: none; layouts that need no file are known.
    pub mig_config_file: Option<PathBuf>,
    /// Whether the agent resets a GPU that changes its MIG mode only so. Default `gpu`.
    pub mig_reset: Option<MigReset>,
    /// The cgroup hierarchy. Default: `fs/cgroup` of the sys file system.
    pub cgroup_root: Option<PathBuf>,
    /// How claims share a GPU. Default `memory`.
    pub gpu_shares: Option<GpuShares>,
    /// Memory enforcement of shares. Default `auto`.
    pub memory_enforcement: Option<MemoryEnforcement>,
    /// How shares are held to their part of a GPU's time. Default `off`.
    pub time_enforcement: Option<TimeEnforcement>,
    /// How shares with a `memoryLimit` above their request give memory back. Default `off`: they are refused.
    pub memory_swap: Option<MemorySwap>,
    /// Memory of the host that swapped processes may take together. Default: half of it.
    pub swap_host_memory: Option<SwapHostMemory>,
    /// Namespaces whose shares are prepared without enforcement of memory and time. Default: none.
    pub exempt_namespaces: Option<BTreeSet<String>>,
    /// The weakest overflow policy that a share can have. Default `Kill`.
    pub min_overflow_policy: Option<OverflowPolicy>,
    /// The former name of `memoryEnforcement`. Reading it is an error that names the new one.
    #[serde(default, deserialize_with = "RenamedSetting::in_file")]
    pub wall: Option<RenamedSetting>,
    /// Host paths that every container with a GPU gets besides the driver's files. Default: none.
    pub mounts: Option<Vec<HostMount>>,
    /// Interval between checks of shares, while there are any. Default `200ms`.
    pub watch_interval: Option<WatchInterval>,
    /// Whether the agent is the driver of `ComputeDomains`, too. Default `false`.
    pub compute_domains: Option<bool>,
    /// Namespace in which daemons of `ComputeDomains` run. Default: that of the agent's service account or kubeconfig.
    pub daemon_namespace: Option<String>,
    /// Who runs the IMEX services of `ComputeDomains`, and what keeps domains apart. Default: daemons of the controller, and an
    /// IMEX domain for each. The controller needs the same.
    pub imex: Option<ImexFile>,
}

/// Complete settings of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// Name of the node in the API.
    pub node_name: String,
    /// Distinguishes this agent from others on its node.
    pub instance_id: Option<String>,
    /// The kubeconfig to use; `None`: the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// Where the node's parts lie.
    pub paths: NodePaths,
    /// The driver's management library; `None`: search it under the driver's root.
    pub driver_library: Option<PathBuf>,
    /// The kernel's log; `None`: XIDs come from the driver's events alone.
    pub kernel_log: Option<PathBuf>,
    /// The program of CDI hooks, as the agent sees it.
    pub hook_path_seen: PathBuf,
    /// GPUs under dynamic MIG, unless the node's label overrides it.
    pub dynamic_mig: DynamicMig,
    /// The only scheduler that allocates this node's devices, unless the node's label overrides it.
    pub owner: Owner,
    /// How the node offers its GPUs, unless the node's label overrides it.
    pub mode: Mode,
    /// Settings of the device plugin.
    pub device_plugin: DevicePluginSettings,
    /// Where the labels of GPU feature discovery are written.
    pub feature_labels: FeatureLabels,
    /// Settings of static MIG; `None`: the node's label has no effect.
    pub mig_manager: Option<MigManagerSettings>,
    /// How claims share a GPU.
    pub gpu_shares: GpuShares,
    /// Memory enforcement of shares prepared from now on.
    pub memory_enforcement: MemoryEnforcement,
    /// How shares are held to their part of a GPU's time.
    pub time_enforcement: TimeEnforcement,
    /// Namespaces whose shares are prepared without enforcement of memory and time.
    pub exempt_namespaces: BTreeSet<String>,
    /// How memory of shares is moved to the host; `None`: it is not.
    pub swap: Option<SwapSettings>,
    /// The weakest overflow policy that a share can have. A share's weaker one has no effect.
    pub min_overflow_policy: OverflowPolicy,
    /// Interval between checks of shares, while there are any.
    pub watch_interval: WatchInterval,
    /// Settings for `ComputeDomains`; `None`: the agent is no driver of theirs.
    pub compute_domains: Option<ComputeDomains>,
}

/// Settings of static MIG.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigManagerSettings {
    /// File with layouts, in the form of mig-parted; `None`: those that need no file alone are known.
    pub file: Option<PathBuf>,
    /// Whether a GPU is reset that changes its MIG mode only so.
    pub reset: MigReset,
}

/// Settings for `ComputeDomains`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComputeDomains {
    /// Namespace in which their daemons run; `None`: that of the agent's service account or kubeconfig.
    pub namespace: Option<String>,
    /// The IMEX services.
    pub imex: Imex,
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read the agent's config file {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// The content of a file is invalid.
    #[error("{path}: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The error, with its line.
        message: String,
    },
    /// The node's name is unknown.
    #[error(
        "the node's name is not known; set nodeName in the config file, the environment variable \
         NODE_NAME (from the pod's spec.nodeName), or --node-name"
    )]
    NoNodeName,
    /// The instance id cannot be part of a file name.
    #[error(
        "the instance id {0:?} cannot be part of a socket's name: give letters, digits and dashes, as \
         in a pod's UID (instanceId in the config file, the environment variable POD_UID, or \
         --instance-id)"
    )]
    InstanceId(String),
    /// The binary's own path is not known.
    #[error("cannot tell where this program lies ({0}); set hookDir in the config file")]
    NoHookPath(std::io::Error),
    /// The agent's view of a folder that is not set.
    #[error("hookDirSeen is set and hookDir is not: name the folder on the host, too")]
    NoHookDir,
    /// Settings of a part that is off.
    #[error("migConfigFile or migReset is set and migManager is not true")]
    NoMigManager,
    /// It is no name of a namespace.
    #[error(
        "exemptNamespaces has {0:?}, which is no name of a namespace: give lower-case letters, digits and dashes"
    )]
    ExemptNamespace(String),
    /// The settings of swapped memory do not fit together.
    #[error(transparent)]
    Swap(#[from] SwapConfigError),
    /// The IMEX settings do not fit together.
    #[error(transparent)]
    Imex(#[from] ImexError),
    /// The settings of the device plugin cannot be used.
    #[error(transparent)]
    DevicePlugin(#[from] DevicePluginError),
    /// A folder of nodes has none.
    #[error("no node in {0}: it needs at least one <node>/agent.yaml")]
    NoNodes(PathBuf),
    /// A path must be absolute.
    #[error("{setting} is {path}, which is not an absolute path")]
    Relative {
        /// The setting.
        setting: &'static str,
        /// The path.
        path: PathBuf,
    },
}

impl NodeFile {
    /// Reads a config file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = fs::read_to_string(path)
            .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Self::parse(&text).map_err(|message| ConfigError::Syntax { path: path.to_owned(), message })
    }

    fn parse(text: &str) -> Result<Self, String> {
        // An empty document is a config file with defaults only.
        if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    }

    /// These settings, completed by those of `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            node_name: self.node_name.or(other.node_name),
            instance_id: self.instance_id.or(other.instance_id),
            kubeconfig: self.kubeconfig.or(other.kubeconfig),
            driver_root: self.driver_root.or(other.driver_root),
            driver_root_seen: self.driver_root_seen.or(other.driver_root_seen),
            proc_root: self.proc_root.or(other.proc_root),
            sys_root: self.sys_root.or(other.sys_root),
            kubelet_root: self.kubelet_root.or(other.kubelet_root),
            device_plugin_root: self.device_plugin_root.or(other.device_plugin_root),
            cdi_root: self.cdi_root.or(other.cdi_root),
            run_root: self.run_root.or(other.run_root),
            hook_dir: self.hook_dir.or(other.hook_dir),
            hook_dir_seen: self.hook_dir_seen.or(other.hook_dir_seen),
            driver_library: self.driver_library.or(other.driver_library),
            kernel_log: self.kernel_log.or(other.kernel_log),
            share_tmpfs: self.share_tmpfs.or(other.share_tmpfs),
            dynamic_mig: self.dynamic_mig.or(other.dynamic_mig),
            owner: self.owner.or(other.owner),
            mode: self.mode.or(other.mode),
            device_plugin: self.device_plugin.or(other.device_plugin),
            feature_labels: self.feature_labels.or(other.feature_labels),
            mig_manager: self.mig_manager.or(other.mig_manager),
            mig_config_file: self.mig_config_file.or(other.mig_config_file),
            mig_reset: self.mig_reset.or(other.mig_reset),
            cgroup_root: self.cgroup_root.or(other.cgroup_root),
            gpu_shares: self.gpu_shares.or(other.gpu_shares),
            memory_enforcement: self.memory_enforcement.or(other.memory_enforcement),
            time_enforcement: self.time_enforcement.or(other.time_enforcement),
            memory_swap: self.memory_swap.or(other.memory_swap),
            swap_host_memory: self.swap_host_memory.or(other.swap_host_memory),
            exempt_namespaces: self.exempt_namespaces.or(other.exempt_namespaces),
            min_overflow_policy: self.min_overflow_policy.or(other.min_overflow_policy),
            wall: self.wall.or(other.wall),
            mounts: self.mounts.or(other.mounts),
            watch_interval: self.watch_interval.or(other.watch_interval),
            compute_domains: self.compute_domains.or(other.compute_domains),
            daemon_namespace: self.daemon_namespace.or(other.daemon_namespace),
            imex: ImexFile::or(self.imex, other.imex),
        }
    }

    /// Applies the defaults of a real node and validates the settings.
    pub fn complete(self) -> Result<NodeConfig, ConfigError> {
        let node_name =
            self.node_name.filter(|name| !name.is_empty()).ok_or(ConfigError::NoNodeName)?;
        let instance_id = self.instance_id.filter(|id| !id.is_empty());
        if let Some(id) = instance_id.as_ref().filter(|id| !is_plain_name(id)) {
            return Err(ConfigError::InstanceId(id.clone()));
        }
        if self.hook_dir.is_none() && self.hook_dir_seen.is_some() {
            return Err(ConfigError::NoHookDir);
        }
        let hook_path = match self.hook_dir {
            Some(folder) => folder.join(HOOK_PROGRAM),
            None => std::env::current_exe().map_err(ConfigError::NoHookPath)?,
        };
        let path = |setting, value: Option<PathBuf>, default: &Path| {
            let path = value.unwrap_or_else(|| default.to_owned());
            if path.is_absolute() { Ok(path) } else { Err(ConfigError::Relative { setting, path }) }
        };
        let exempt_namespaces = self.exempt_namespaces.unwrap_or_default();
        if let Some(name) = exempt_namespaces.iter().find(|name| !is_namespace(name)) {
            return Err(ConfigError::ExemptNamespace(name.clone()));
        }
        let hook_seen = self.hook_dir_seen.map(|folder| folder.join(HOOK_PROGRAM));
        let root = Path::new("/");
        let driver_root = path("driverRoot", self.driver_root, root)?;
        let sys_root = path("sysRoot", self.sys_root, Path::new("/sys"))?;
        let mounts = self.mounts.unwrap_or_default();
        for mount in &mounts {
            path("mounts.hostPath", Some(mount.host_path.clone()), root)?;
            path("mounts.containerPath", Some(mount.container_path.clone()), root)?;
        }
        let has_mig_settings = self.mig_config_file.is_some() || self.mig_reset.is_some();
        let mig_manager = match (self.mig_manager, self.mig_config_file) {
            (Some(true), file) => {
                let file = file.map(|file| path("migConfigFile", Some(file), root)).transpose()?;
                Some(MigManagerSettings { file, reset: self.mig_reset.unwrap_or_default() })
            }
            _ if has_mig_settings => return Err(ConfigError::NoMigManager),
            _ => None,
        };
        let imex = self.imex.unwrap_or_default().complete()?;
        let compute_domains = match self.compute_domains {
            Some(true) => Some(ComputeDomains { namespace: self.daemon_namespace, imex }),
            _ if imex != Imex::default() => return Err(ImexError::NoComputeDomains.into()),
            _ => None,
        };
        let driver_root_seen = path("driverRootSeen", self.driver_root_seen, &driver_root)?;
        let memory_enforcement = self.memory_enforcement.unwrap_or_default();
        let time_enforcement = self.time_enforcement.unwrap_or_default();
        let swap = memory_swap::complete(
            (self.memory_swap.unwrap_or_default(), self.swap_host_memory),
            time_enforcement,
            memory_enforcement,
            driver_root_seen.clone(),
        )?;
        Ok(NodeConfig {
            node_name,
            instance_id,
            kubeconfig: self.kubeconfig,
            driver_library: self.driver_library,
            kernel_log: self
                .kernel_log
                .map(|log| path("kernelLog", Some(log), root))
                .transpose()?,
            hook_path_seen: path("hookDirSeen", hook_seen, &hook_path)?,
            dynamic_mig: self.dynamic_mig.unwrap_or_default(),
            owner: self.owner.unwrap_or_default(),
            mode: self.mode.unwrap_or_default(),
            device_plugin: self.device_plugin.unwrap_or_default().complete()?,
            feature_labels: self.feature_labels.unwrap_or_default(),
            mig_manager,
            gpu_shares: self.gpu_shares.unwrap_or_default(),
            memory_enforcement,
            time_enforcement,
            exempt_namespaces,
            swap,
            min_overflow_policy: self.min_overflow_policy.unwrap_or_default(),
            watch_interval: self.watch_interval.unwrap_or_default(),
            compute_domains,
            paths: NodePaths {
                driver_root_seen,
                driver_root,
                proc_root: path("procRoot", self.proc_root, Path::new("/proc"))?,
                cgroup_root: path("cgroupRoot", self.cgroup_root, &sys_root.join("fs/cgroup"))?,
                sys_root,
                kubelet_root: path(
                    "kubeletRoot",
                    self.kubelet_root,
                    Path::new("/var/lib/kubelet"),
                )?,
                device_plugin_root: path(
                    "devicePluginRoot",
                    self.device_plugin_root,
                    Path::new("/var/lib/kubelet/device-plugins"),
                )?,
                cdi_root: path("cdiRoot", self.cdi_root, Path::new("/var/run/cdi"))?,
                run_root: path("runRoot", self.run_root, Path::new("/run"))?,
                hook_path: path("hookDir", Some(hook_path), root)?,
                share_tmpfs: self.share_tmpfs.unwrap_or_default(),
                mounts,
            },
        })
    }
}

impl NodeConfig {
    /// Folder of the GPU driver's own files and of its DRA socket.
    pub fn plugin_folder(&self) -> PathBuf {
        DraDriver::GPU.plugin_folder(&self.paths.kubelet_root)
    }

    /// The record of GPUs' health.
    pub(crate) fn health_file(&self) -> PathBuf {
        self.plugin_folder().join("health.json")
    }

    /// Folder of the GPU driver's checkpoints.
    pub fn checkpoint_folder(&self) -> PathBuf {
        DraDriver::GPU.checkpoint_folder(&self.paths.kubelet_root)
    }

    /// The drivers that the agent is on this node.
    pub(crate) fn drivers(&self) -> impl Iterator<Item = DraDriver> + use<> {
        let domains = self.compute_domains.as_ref().map(|_| DraDriver::COMPUTE_DOMAIN);
        [DraDriver::GPU].into_iter().chain(domains)
    }

    /// Folder in which the kubelet looks for registration sockets.
    pub fn registry_folder(&self) -> PathBuf {
        self.paths.kubelet_root.join("plugins_registry")
    }
}

/// Whether text may name a namespace.
fn is_namespace(text: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(is_allowed)
}

/// Reads every `<folder>/<node>/agent.yaml`, in order of the nodes' names.
pub fn read_nodes(folder: &Path) -> Result<Vec<NodeConfig>, ConfigError> {
    let failed = |source| ConfigError::Read { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let file = entry.map_err(failed)?.path().join("agent.yaml");
        if file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(ConfigError::NoNodes(folder.to_owned()));
    }
    files.iter().map(|file| NodeFile::read(file)?.complete()).collect()
}

#[cfg(test)]
mod tests;
