//! A scheduler's writes without decisions: pod i goes to slot i.

use std::time::Duration;

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::json;

use super::api::{Api, Kind};
use super::objects::{self, EXTENDED_REQUEST, FINALIZER, GPUS};
use super::observer::Observer;

/// How long a controller may take to make a pod's claim.
const CLAIM_TIMEOUT: Duration = Duration::from_mins(2);

/// The decoded part of a written object.
#[derive(Deserialize)]
struct Written {
    metadata: Meta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: String,
    uid: String,
    resource_version: String,
}

/// The UID of a pod that was created, from the answer.
pub(super) fn uid(answer: &str) -> anyhow::Result<String> {
    Ok(read(answer)?.uid)
}

/// Binds a pod.
pub(super) async fn bind(api: &Api, pod: &str, node: usize) -> anyhow::Result<()> {
    let binding = objects::binding(pod, &objects::node_name(node));
    api.post(Kind::Pods, &format!("{pod}/binding"), &binding).await
}

/// Waits for the claim that is made from the pod's template; gives it the GPU; binds the pod.
pub(super) async fn bind_with_template(
    api: &Api,
    observer: &Observer,
    pod: &str,
    number: usize,
) -> anyhow::Result<()> {
    let what = format!("the claim of {pod}");
    let (claim, pod_uid) = observer
        .until(&what, CLAIM_TIMEOUT, |seen| {
            let claim = seen.claims.get(pod)?;
            Some((claim.name.clone(), seen.pods.get(pod)?.uid.clone()))
        })
        .await?;
    let change = json!({"metadata": {"finalizers": [FINALIZER]}});
    let written = read(&api.merge(Kind::Claims, &claim, &change).await?)?;
    allocate(api, &written, "gpu", (pod, &pod_uid), number).await?;
    bind(api, pod, number / GPUS).await
}

/// Creates the claim for the pod's extended resources, allocates the GPU, updates the pod's status
/// and binds the pod.
pub(super) async fn bind_with_extended(
    api: &Api,
    pod: &str,
    pod_uid: &str,
    number: usize,
) -> anyhow::Result<()> {
    let claim = objects::extended_claim(pod, pod_uid);
    let written = read(&api.create(Kind::Claims, &claim).await?)?;
    allocate(api, &written, EXTENDED_REQUEST, (pod, pod_uid), number).await?;
    let status = objects::extended_status(&written.name);
    api.merge(Kind::Pods, &format!("{pod}/status"), &status).await?;
    bind(api, pod, number / GPUS).await
}

async fn allocate(
    api: &Api,
    claim: &Meta,
    request: &str,
    pod: (&str, &str),
    number: usize,
) -> anyhow::Result<()> {
    if claim.resource_version.is_empty() {
        bail!("the API server gave claim {} no version", claim.name);
    }
    let object = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {
            "name": claim.name, "uid": claim.uid, "resourceVersion": claim.resource_version,
        },
        // Every update carries the spec; a status update leaves it unchanged.
        "spec": {"devices": {"requests": [
            {"name": request, "exactly": {"deviceClassName": "gpu.nvidia.com"}},
        ]}},
        "status": objects::allocated(request, (number / GPUS, number % GPUS), pod),
    });
    api.put(Kind::Claims, &format!("{}/status", claim.name), &object).await
}

fn read(answer: &str) -> anyhow::Result<Meta> {
    let written: Written = serde_json::from_str(answer).context("read what was written")?;
    Ok(written.metadata)
}
