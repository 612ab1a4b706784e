//! Claims that are already allocated, as a scheduler would have written them.

use anyhow::Context;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use octavo_kubelet_api::dra::v1;
use serde_json::{Value, json};

/// Namespace of the benchmark's claims.
const NAMESPACE: &str = "default";

/// Creates a claim and writes its allocation of `device` on `node`.
pub(crate) async fn allocated(
    client: &Client,
    name: &str,
    node: &str,
    device: &str,
) -> anyhow::Result<v1::Claim> {
    allocated_with(client, name, node, device, &json!({})).await
}

/// Creates a claim with additional fields in the allocation result, such as those of a share.
pub(crate) async fn allocated_with(
    client: &Client,
    name: &str,
    node: &str,
    device: &str,
    more: &Value,
) -> anyhow::Result<v1::Claim> {
    let mut result = json!({
        "request": "gpu", "driver": "gpu.nvidia.com", "pool": node, "device": device,
    });
    if let (Some(result), Some(more)) = (result.as_object_mut(), more.as_object()) {
        result.extend(more.clone());
    }
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), NAMESPACE);
    let claim: ResourceClaim = serde_json::from_value(json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}},
        ]}},
    }))?;
    let mut claim = claims
        .create(&PostParams::default(), &claim)
        .await
        .with_context(|| format!("create claim {name}"))?;
    let uid = claim.uid().context("the API server gave the claim no UID")?;
    claim.status = Some(serde_json::from_value(json!({
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]},
            ]},
        },
    }))?);
    claims
        .replace_status(name, &PostParams::default(), &claim)
        .await
        .with_context(|| format!("write the allocation of claim {name}"))?;
    Ok(v1::Claim { namespace: NAMESPACE.into(), uid, name: name.into() })
}

/// Removes the allocation and the claim.
pub(crate) async fn delete(client: &Client, claim: &v1::Claim) -> anyhow::Result<()> {
    let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), &claim.namespace);
    claims
        .delete(&claim.name, &DeleteParams::default())
        .await
        .with_context(|| format!("delete claim {}", claim.name))?;
    Ok(())
}
