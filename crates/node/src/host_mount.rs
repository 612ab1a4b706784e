//! The settings `mounts` and `--mount`: host paths for containers with a GPU.

use std::path::PathBuf;
use std::str::FromStr;

use serde::Deserialize;

/// A file or folder of the host for every container with a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostMount {
    /// Where it is on the host.
    pub host_path: PathBuf,
    /// Where containers see it.
    pub container_path: PathBuf,
    /// Whether containers can only read it. Default: they can.
    #[serde(rename = "readOnly", default = "yes")]
    pub is_read_only: bool,
}

/// A mount on the command line that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no mount; give HOST:CONTAINER or HOST:CONTAINER:rw, with absolute paths")]
pub struct HostMountError(String);

fn yes() -> bool {
    true
}

/// Reads `HOST:CONTAINER`, which is read-only, or `HOST:CONTAINER:rw`.
impl FromStr for HostMount {
    type Err = HostMountError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = text.split(':').collect();
        let (host, container, is_read_only) = match parts.as_slice() {
            [host, container] => (host, container, true),
            [host, container, mode @ ("ro" | "rw")] => (host, container, *mode == "ro"),
            _ => return Err(HostMountError(text.to_owned())),
        };
        if !host.starts_with('/') || !container.starts_with('/') {
            return Err(HostMountError(text.to_owned()));
        }
        Ok(Self { host_path: host.into(), container_path: container.into(), is_read_only })
    }
}
