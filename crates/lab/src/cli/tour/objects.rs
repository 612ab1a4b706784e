//! The tour's objects on the API server: apply, wait, delete.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::DeleteParams;
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt};

use crate::cluster::apply;

/// Applies every document of a manifest file.
pub(super) async fn apply_file(client: &Client, path: &Path) -> anyhow::Result<Vec<DynamicObject>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let objects = apply::parse(&text).with_context(|| format!("read {}", path.display()))?;
    apply::apply(client, &objects).await.with_context(|| format!("apply {}", path.display()))?;
    Ok(objects)
}

/// Names of the pods among `objects`.
pub(super) fn pods_of(objects: &[DynamicObject]) -> Vec<String> {
    objects
        .iter()
        .filter(|object| object.types.as_ref().is_some_and(|types| types.kind == "Pod"))
        .map(ResourceExt::name_any)
        .collect()
}

/// Waits until the pod's phase is `phase`.
pub(super) async fn wait_for_phase(
    pods: &Api<Pod>,
    name: &str,
    phase: &str,
    timeout: Duration,
) -> anyhow::Result<Pod> {
    wait(pods, name, timeout, phase, |pod| {
        pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)
    })
    .await
}

/// Waits until the scheduler reports that the pod is unschedulable.
pub(super) async fn wait_until_unschedulable(
    pods: &Api<Pod>,
    name: &str,
    timeout: Duration,
) -> anyhow::Result<Pod> {
    wait(pods, name, timeout, "Unschedulable", |pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref());
        conditions.unwrap_or_default().iter().any(|condition| {
            condition.type_ == "PodScheduled"
                && condition.reason.as_deref() == Some("Unschedulable")
        })
    })
    .await
}

async fn wait(
    pods: &Api<Pod>,
    name: &str,
    timeout: Duration,
    wanted: &str,
    is_there: impl Fn(&Pod) -> bool,
) -> anyhow::Result<Pod> {
    let deadline = Instant::now() + timeout;
    loop {
        let pod = pods.get(name).await.with_context(|| format!("read pod {name}"))?;
        if is_there(&pod) {
            return Ok(pod);
        }
        if Instant::now() > deadline {
            let status = serde_json::to_string_pretty(&pod.status).unwrap_or_default();
            bail!("pod {name} is not {wanted} after {} s: {status}", timeout.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Deletes a namespace with its objects and waits until it is gone.
pub(super) async fn delete_namespace(
    client: &Client,
    name: &str,
    timeout: Duration,
) -> anyhow::Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .delete(name, &DeleteParams::default())
        .await
        .with_context(|| format!("delete namespace {name}"))?;
    let deadline = Instant::now() + timeout;
    while namespaces
        .get_opt(name)
        .await
        .with_context(|| format!("read namespace {name}"))?
        .is_some()
    {
        if Instant::now() > deadline {
            bail!("namespace {name} is still there after {} s", timeout.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
