//! Checks that nothing remains after all pods and claims are gone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};

/// Longest wait for the last unprepare after the last pod is gone.
const UNPREPARE_TIMEOUT: Duration = Duration::from_secs(30);

/// Waits until no claim, checkpoint, CDI spec or container record is left on any node, except those
/// of `before`. The user's own pods may run beside the tour's.
pub(super) async fn check(
    client: &Client,
    state_dir: &Path,
    before: &BTreeSet<String>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        let mut left = list_all(client, state_dir).await?;
        left.retain(|thing| !before.contains(thing));
        if left.is_empty() {
            return Ok(());
        }
        if started.elapsed() > UNPREPARE_TIMEOUT {
            bail!("left behind after everything was deleted:\n  {}", left.join("\n  "));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Everything that exists before the tour, as text. Excludes the remains of an earlier tour in
/// `namespace`.
pub(super) async fn find(
    client: &Client,
    state_dir: &Path,
    namespace: &str,
) -> anyhow::Result<BTreeSet<String>> {
    let ours = format!("claim {namespace}/");
    let existing = list_all(client, state_dir).await?;
    Ok(existing.into_iter().filter(|thing| !thing.starts_with(&ours)).collect())
}

/// All claims, and all files of claims and pods on the nodes.
async fn list_all(client: &Client, state_dir: &Path) -> anyhow::Result<Vec<String>> {
    let claims: Api<ResourceClaim> = Api::all(client.clone());
    let claims = claims.list(&ListParams::default()).await.context("list claims")?;
    let mut left: Vec<String> = claims
        .iter()
        .map(|claim| {
            let namespace = claim.namespace().unwrap_or_default();
            format!("claim {namespace}/{}", claim.name_any())
        })
        .collect();
    let nodes = state_dir.join("nodes");
    for node in folder(&nodes)? {
        let checkpoints = folder(&node.join("kubelet/plugins/gpu.nvidia.com/checkpoint"))?;
        // The folder also has files about the boot and the owner.
        let claims =
            checkpoints.into_iter().filter(|path| path.extension() == Some("json".as_ref()));
        let others = [
            folder(&node.join("cdi"))?,
            folder(&node.join("kubelet/pods"))?,
            folder(&node.join("run/octavo/shares"))?,
        ];
        for file in claims.chain(others.into_iter().flatten()) {
            left.push(format!("file {}", file.display()));
        }
    }
    Ok(left)
}

/// Sorted paths in a folder; a missing folder is empty.
fn folder(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
    };
    let mut paths = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .with_context(|| format!("read {}", path.display()))?;
    paths.sort();
    Ok(paths)
}
