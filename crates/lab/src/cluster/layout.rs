//! Paths of the lab's files: one state folder and its parts.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::cluster::component::Component;
use crate::real_node::RealProgram;

/// Longest path of a Unix socket address in bytes (`sockaddr_un` without the final zero).
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The longest socket path below a node's folder.
const DEEPEST_SOCKET_PATH: &str = "kubelet/plugins_registry/compute-domain.nvidia.com@reg.sock";

/// All parts of a state folder. `down` removes these and nothing else.
const PARTS: [&str; 16] = [
    "pki",
    "etcd",
    "logs",
    "pids",
    "nodes",
    "machines",
    "real",
    "kubeconfig",
    "lab.json",
    "scheduler.yaml",
    "octavo-scheduler.yaml",
    "octavo-controller.yaml",
    "Corefile",
    "kubelets.yaml",
    "kubectl-cache",
    "flex-volumes",
];

/// Name of the lock file. It is a part too, but is removed last.
const LOCK_FILE: &str = "lock";

/// A state folder, identified by its absolute path. It need not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The state folder at `root`, as an absolute path.
    pub fn new(root: &Path) -> anyhow::Result<Self> {
        let root = std::path::absolute(root)
            .with_context(|| format!("make the state folder {} absolute", root.display()))?;
        Ok(Self { root })
    }

    /// The named folder, else `$OCTAVO_LAB_DIR`, else the user's default:
    /// `$XDG_STATE_HOME/octavo/lab`, else `~/.octavo/lab`.
    pub fn choose(named: Option<&Path>) -> anyhow::Result<Self> {
        Self::choose_from(named, |name| std::env::var_os(name).filter(|value| !value.is_empty()))
    }

    /// Like [`Layout::choose`], with a given environment.
    pub(crate) fn choose_from(
        named: Option<&Path>,
        env: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> anyhow::Result<Self> {
        if let Some(path) = named {
            return Self::new(path);
        }
        if let Some(folder) = env("OCTAVO_LAB_DIR") {
            return Self::new(Path::new(&folder));
        }
        if let Some(state) = env("XDG_STATE_HOME") {
            return Self::new(&Path::new(&state).join("octavo/lab"));
        }
        match env("HOME") {
            Some(home) => Self::new(&Path::new(&home).join(".octavo/lab")),
            None => bail!("no folder for the lab: HOME is not set; name one with --state-dir"),
        }
    }

    /// The state folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Kubeconfig of the cluster administrator, the value for `KUBECONFIG`.
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// Parent folder of the nodes' folders.
    pub fn nodes(&self) -> PathBuf {
        self.root.join("nodes")
    }

    /// Folder of one node.
    pub fn node(&self, name: &str) -> PathBuf {
        self.nodes().join(name)
    }

    /// Folder shared by all nodes of one machine, by the stem of their names.
    pub(crate) fn machine(&self, stem: &str) -> PathBuf {
        self.root.join("machines").join(stem)
    }

    /// Log of a component: its standard output and error.
    pub fn log(&self, component: Component) -> PathBuf {
        self.root.join("logs").join(format!("{}.log", component.name()))
    }

    /// Folder of the additional files of real nodes.
    pub(crate) fn real(&self) -> PathBuf {
        self.root.join("real")
    }

    /// Additional files of one real node: kubelet and containerd data in `lib`, pod logs in `log`.
    pub fn real_node(&self, name: &str) -> PathBuf {
        self.real().join(name)
    }

    /// Folder with the images of real nodes, an OCI image layout.
    pub(crate) fn images(&self) -> PathBuf {
        self.real().join("images")
    }

    /// Log of a program of a real node, or of the node itself (`node`).
    pub(crate) fn real_log(&self, name: &str, program: &str) -> PathBuf {
        self.logs().join(format!("{name}.{program}.log"))
    }

    /// Pid file of a real node's `unshare` or QEMU process, with which the node ends.
    pub(crate) fn real_pid(&self, name: &str) -> PathBuf {
        self.pids().join(name)
    }

    /// Pid of a real node's program, as counted within the node.
    pub(crate) fn real_pid_file(&self, name: &str, program: RealProgram) -> PathBuf {
        self.real_node(name).join(format!("{}.pid", program.name()))
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// A file of the key folder: `ca.crt`, `admin.key`.
    pub(crate) fn pki_file(&self, name: &str) -> PathBuf {
        self.pki().join(name)
    }

    /// Kubeconfig of one of the cluster's clients: `scheduler`, `kubelets`.
    pub fn client_kubeconfig(&self, client: &str) -> PathBuf {
        self.pki().join(format!("{client}.kubeconfig"))
    }

    pub(crate) fn etcd(&self) -> PathBuf {
        self.root.join("etcd")
    }

    pub(crate) fn pids(&self) -> PathBuf {
        self.root.join("pids")
    }

    pub(crate) fn pid_file(&self, component: Component) -> PathBuf {
        self.pids().join(component.name())
    }

    /// Pid file of the parent watch, if the lab has one.
    pub(crate) fn parent_watch_pid(&self) -> PathBuf {
        self.pids().join("parent-watch")
    }

    /// Log of the parent watch.
    pub(crate) fn parent_watch_log(&self) -> PathBuf {
        self.logs().join("parent-watch.log")
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub(crate) fn settings(&self) -> PathBuf {
        self.root.join("lab.json")
    }

    pub(crate) fn scheduler_config(&self) -> PathBuf {
        self.root.join("scheduler.yaml")
    }

    /// Config file of Octavo's scheduler.
    pub fn octavo_scheduler_config(&self) -> PathBuf {
        self.root.join("octavo-scheduler.yaml")
    }

    /// Config file of Octavo's controller.
    pub fn octavo_controller_config(&self) -> PathBuf {
        self.root.join("octavo-controller.yaml")
    }

    /// Config file of the name server.
    pub(crate) fn name_server_config(&self) -> PathBuf {
        self.root.join("Corefile")
    }

    /// kubectl's discovery cache; the default is a permanent folder in the user's home.
    pub(crate) fn kubectl_cache(&self) -> PathBuf {
        self.root.join("kubectl-cache")
    }

    /// Folder that the controller manager creates; the default is below `/usr`.
    pub(crate) fn flex_volumes(&self) -> PathBuf {
        self.root.join("flex-volumes")
    }

    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join(LOCK_FILE)
    }

    /// Rejects a folder in which socket paths would exceed the kernel's limit.
    pub(crate) fn check_sockets<'a>(
        &self,
        nodes: impl Iterator<Item = &'a str>,
    ) -> anyhow::Result<()> {
        let Some(longest) = nodes.max_by_key(|name| name.len()) else { return Ok(()) };
        let socket = self.node(longest).join(DEEPEST_SOCKET_PATH);
        let length = socket.as_os_str().len();
        if length > MAX_SOCKET_PATH_BYTES {
            bail!(
                "the state folder's path is too long: the socket {} has {length} bytes and the \
                 kernel allows {MAX_SOCKET_PATH_BYTES}; name a folder that is {} bytes shorter with \
                 --state-dir or OCTAVO_LAB_DIR",
                socket.display(),
                length - MAX_SOCKET_PATH_BYTES
            );
        }
        Ok(())
    }

    /// Rejects a folder with foreign files. So `down` never removes files that it did not create,
    /// and the lab never mixes with other files.
    pub(crate) fn check_owned(&self) -> anyhow::Result<()> {
        let entries = match std::fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => {
                return Err(e).with_context(|| format!("read the folder {}", self.root.display()));
            }
        };
        for entry in entries {
            let name = entry.context("read the state folder")?.file_name();
            if !is_part(&name) {
                bail!(
                    "{} holds {}, which does not belong to a lab; name an empty folder with \
                     --state-dir",
                    self.root.display(),
                    Path::new(&name).display()
                );
            }
        }
        Ok(())
    }

    /// Whether any part of a lab exists, even if only its logs.
    pub(crate) fn has_lab(&self) -> bool {
        self.settings().exists()
            || self.pids().exists()
            || Component::ALL.iter().any(|component| self.log(*component).exists())
    }

    /// Removes the lab's files except the lock file; with `keep_logs` the logs stay, too.
    pub(crate) fn remove(&self, keep_logs: bool) -> std::io::Result<()> {
        for part in PARTS.iter().filter(|part| !(keep_logs && **part == "logs")) {
            let path = self.root.join(part);
            let removed = match std::fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() => std::fs::remove_dir_all(&path),
                Ok(_) => std::fs::remove_file(&path),
                Err(e) => Err(e),
            };
            match removed {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }
}

fn is_part(name: &OsStr) -> bool {
    name == LOCK_FILE || PARTS.iter().any(|part| name == *part)
}

#[cfg(test)]
mod tests;
