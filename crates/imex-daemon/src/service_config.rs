//! The files that `nvidia-imex` reads at its start: its config and its list of nodes.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::slots;

/// What the config file says of this node.
#[derive(Clone, Debug)]
pub(crate) struct ServiceConfig {
    /// Address of the pod, for peers and for commands.
    pub(crate) address: IpAddr,
    /// Port for peers.
    pub(crate) server_port: u16,
    /// Port for commands.
    pub(crate) command_port: u16,
    /// The list of nodes.
    pub(crate) nodes_file: PathBuf,
    /// Folder with key, certificate and authority; `None`: connections are plain.
    pub(crate) tls_folder: Option<PathBuf>,
}

impl ServiceConfig {
    /// The text of the file. Keys and values are those of NVIDIA's driver, but for `BIND_INTERFACE_IP`, which is empty there:
    /// with the pod's address the service need not guess which node of its list it is, and listens nowhere else.
    pub(crate) fn render(&self) -> String {
        let Self { address, server_port, command_port, nodes_file, tls_folder } = self;
        let nodes_file = nodes_file.display();
        let file =
            |name: &str| tls_folder.as_ref().map(|folder| folder.join(name).display().to_string());
        let [key, certificate, authority] =
            ["tls.key", "tls.crt", "ca.crt"].map(|name| file(name).unwrap_or_default());
        let (is_tls, source) = if tls_folder.is_some() { (1, "FILE") } else { (0, "") };
        format!(
            "\
# Written by octavo imex-daemon at each start.
LOG_LEVEL=4
LOG_FILE_NAME=
STATS_FILE_NAME=/var/log/nvidia-imex-stats.log
LOG_APPEND_TO_LOG=0
LOG_FILE_MAX_SIZE=1024
LOG_MAX_ROTATE_COUNT=10
LOG_USE_SYSLOG=0
DAEMONIZE=0
BIND_INTERFACE_IP={address}
SERVER_PORT={server_port}
IMEX_NODE_CONFIG_FILE={nodes_file}
NETWORK_INTERFACE=
IMEX_WAIT_FOR_QUORUM=RECOVERY
IMEX_ENABLE_AUTH_ENCRYPTION={is_tls}
IMEX_AUTH_ENCRYPTION_MODE=SSL_TLS
IMEX_AUTH_SOURCE={source}
IMEX_SERVER_KEY={key}
IMEX_SERVER_CERT={certificate}
IMEX_SERVER_CERT_AUTH={authority}
IMEX_CLIENT_KEY={key}
IMEX_CLIENT_CERT={certificate}
IMEX_CLIENT_CERT_AUTH={authority}
IMEX_SECURITY_TARGET_OVERRIDE=
IMEX_GSS_SERVICE_NAME=host
IMEX_GSS_TIMEOUT_SEC=30
IMEX_GSS_RETRY_INTERVAL_SEC=5
IMEX_GSS_SEC_CONTEXT_LIFETIME_SEC=-1
IMEX_GSS_SHUTDOWN_ON_FAILURE=0
IMEX_CMD_ENABLED=1
IMEX_CMD_BIND_INTERFACE_IP={address}
IMEX_CMD_PORT={command_port}
IMEX_CMD_UNIX_DOMAIN_PATH=
IMEX_NODE_DISCONNECTED_GRACE_TIME=-1
"
        )
    }
}

/// The list of nodes: the names of all slots, so that it is the same on all nodes and never changes.
pub(crate) fn nodes(count: usize) -> String {
    (0..count).map(|index| slots::name(index) + "\n").collect()
}

/// Writes a file as a whole: a reader sees the old or the new text.
pub(crate) fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    fs::write(&next, text)?;
    fs::rename(&next, path)
}

#[cfg(test)]
mod tests;
