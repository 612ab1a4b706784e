//! A simulated container's record, read from the file of the simulated runtime.

use std::path::Path;

use anyhow::{Context, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use octavo_api::names::SHARES_FOLDER;
use serde::Deserialize;

/// A container's environment and devices, as its process would see them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container {
    #[serde(rename = "container")]
    name: String,
    #[serde(default)]
    env: Vec<String>,
    #[serde(default)]
    device_nodes: Vec<DeviceNode>,
    #[serde(default)]
    mounts: Vec<Mount>,
}

/// The limits of a share, from its folder.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Limits {
    /// Identity of the share.
    pub(super) share_id: String,
    /// Memory in bytes.
    pub(super) memory_bytes: u64,
    /// Compute in thousandths of a percent; 0: only a fair part of idle time.
    pub(super) compute_milli_percent: u64,
    /// Its GPU.
    pub(super) gpu: LimitedGpu,
}

#[derive(Debug, Deserialize)]
pub(super) struct LimitedGpu {
    /// `GPU-...`.
    pub(super) uuid: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    host_path: String,
    container_path: String,
}

#[derive(Debug, Deserialize)]
struct DeviceNode {
    path: String,
}

impl Container {
    /// All containers of `pod` on `node`, sorted by name.
    pub(super) fn all_of(state_dir: &Path, node: &str, pod: &Pod) -> anyhow::Result<Vec<Self>> {
        let uid = pod.uid().context("a pod without UID")?;
        let folder = state_dir.join("nodes").join(node).join("kubelet/pods").join(uid);
        let mut containers = Vec::new();
        for entry in std::fs::read_dir(&folder).with_context(|| {
            format!("read the container files of {}: {}", pod.name_any(), folder.display())
        })? {
            let path = entry?.path();
            let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            containers.push(
                serde_json::from_slice::<Self>(&text)
                    .with_context(|| format!("read {}", path.display()))?,
            );
        }
        ensure!(!containers.is_empty(), "{} got no container", pod.name_any());
        containers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(containers)
    }

    /// Name of the container.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Device nodes of whole GPUs: `/dev/nvidia<minor>`.
    pub(super) fn gpus(&self) -> Vec<String> {
        let is_gpu = |path: &&str| {
            path.strip_prefix("/dev/nvidia")
                .is_some_and(|minor| !minor.is_empty() && minor.bytes().all(|b| b.is_ascii_digit()))
        };
        self.device_nodes
            .iter()
            .map(|node| node.path.as_str())
            .filter(is_gpu)
            .map(str::to_owned)
            .collect()
    }

    /// Limits of its shares.
    pub(super) fn limits(&self) -> anyhow::Result<Vec<Limits>> {
        // A share's state file is a separate mount within the folder.
        let folders = self.mounts.iter().filter(|mount| {
            Path::new(&mount.container_path).parent() == Some(Path::new(SHARES_FOLDER))
        });
        let read = |mount: &Mount| {
            let path = Path::new(&mount.host_path).join("limits.json");
            let text = std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
            serde_json::from_slice(&text).with_context(|| format!("read {}", path.display()))
        };
        folders.map(read).collect()
    }

    /// Device nodes of MIG capabilities: two for each MIG device.
    pub(super) fn capabilities(&self) -> Vec<String> {
        let paths = self.device_nodes.iter().map(|node| node.path.as_str());
        let capabilities = paths.filter(|path| path.starts_with("/dev/nvidia-caps/"));
        capabilities.map(str::to_owned).collect()
    }

    /// Its parts of GPUs as text; empty for whole GPUs.
    pub(super) fn parts(&self) -> String {
        let mut parts = Vec::new();
        for limits in self.limits().unwrap_or_default() {
            let mebibytes = limits.memory_bytes >> 20;
            parts.push(match limits.compute_milli_percent {
                0 => format!("a share: {mebibytes} MiB, idle time"),
                milli => format!(
                    "a share: {mebibytes} MiB, {}.{}% of time",
                    milli / 1000,
                    milli % 1000 / 100
                ),
            });
        }
        match self.capabilities().len() / 2 {
            0 => {}
            1 => parts.push("a MIG device of it".to_owned()),
            count => parts.push(format!("{count} MIG devices of it")),
        }
        parts.join("; ")
    }

    /// Value of an environment variable; the last one wins, as in a process.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.env.iter().rev().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_minors_are_gpus_and_the_last_variable_wins() {
        let container: Container = serde_json::from_str(
            r#"{"container": "main", "env": ["A=1", "AB=3", "A=2"], "deviceNodes": [
                {"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia12"}, {"path": "/dev/nvidia"}]}"#,
        )
        .unwrap();
        assert_eq!(container.gpus(), ["/dev/nvidia12"]);
        assert_eq!(container.variable("A"), Some("2"));
        assert_eq!(container.variable("C"), None);
    }
}
