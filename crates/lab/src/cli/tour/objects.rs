//! The tour's objects on the API server: apply, wait, delete.

use std::fmt::Debug;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, ListParams};
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;

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
///
/// Pods and claims are deleted first: a namespace that still has pods is only looked at again after
/// seconds.
pub(crate) async fn delete_namespace(
    client: &Client,
    name: &str,
    timeout: Duration,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    delete_all(&Api::<Pod>::namespaced(client.clone(), name), deadline).await?;
    delete_all(&Api::<ResourceClaim>::namespaced(client.clone(), name), deadline).await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    namespaces
        .delete(name, &DeleteParams::default())
        .await
        .with_context(|| format!("delete namespace {name}"))?;
    loop {
        let found = namespaces.get_opt(name).await;
        if found.with_context(|| format!("read namespace {name}"))?.is_none() {
            return Ok(());
        }
        pause(deadline, &format!("namespace {name} is still there")).await?;
    }
}

/// Deletes all objects of a kind in a namespace and waits until they are gone.
async fn delete_all<K>(api: &Api<K>, deadline: Instant) -> anyhow::Result<()>
where
    K: Clone + DeserializeOwned + Debug + kube::Resource<DynamicType = ()>,
{
    let kind = K::plural(&());
    api.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .with_context(|| format!("delete the {kind}"))?;
    loop {
        let left = api.list_metadata(&ListParams::default()).await;
        let left = left.with_context(|| format!("list the {kind}"))?.items;
        let Some(first) = left.first() else { return Ok(()) };
        let what = format!("{} {kind}, such as {}, are still there", left.len(), first.name_any());
        pause(deadline, &what).await?;
    }
}

/// Waits a moment. Past the deadline, `what` is the error.
async fn pause(deadline: Instant, what: &str) -> anyhow::Result<()> {
    ensure!(Instant::now() < deadline, "{what} after the timeout");
    tokio::time::sleep(Duration::from_millis(50)).await;
    Ok(())
}
