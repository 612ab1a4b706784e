//! What uses Octavo's GPUs, so that a release stays.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::ListParams;
use kube::{Api, Client};
use octavo_api::names::{DRIVER, DRIVER_COMPUTE_DOMAIN, LABEL_MODE, MODE_NONE};
use octavo_view::ViewError;
use octavo_view::fetch::list;

use crate::facts::dynamic;
use crate::owner::{Release, of_release};

/// What has to end first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holders {
    /// Pods with claims, or with GPUs of the device plugin: `namespace/name`.
    pub(crate) pods: BTreeSet<String>,
    /// `ComputeDomains`, whose finalizer needs the controller.
    pub(crate) domains: BTreeSet<String>,
    /// Allocated claims that no pod uses. Nothing has to end, but they keep their allocation.
    pub(crate) idle_claims: BTreeSet<String>,
}

impl Holders {
    /// Whether nothing has to end.
    pub(crate) fn is_none(&self) -> bool {
        self.pods.is_empty() && self.domains.is_empty()
    }
}

/// The nodes on which a release has agents.
pub(crate) async fn agent_nodes(
    client: &Client,
    release: &Release,
) -> Result<BTreeSet<String>, ViewError> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &release.namespace);
    let labels = format!("{},app.kubernetes.io/component=agent", of_release(release));
    let pods = list("pods", &pods, ListParams::default().labels(&labels)).await?;
    Ok(pods.into_iter().filter_map(|pod| pod.spec?.node_name).collect())
}

/// What uses the GPUs of nodes.
pub(crate) async fn read(client: &Client, nodes: &BTreeSet<String>) -> Result<Holders, ViewError> {
    let claims: Api<ResourceClaim> = Api::all(client.clone());
    let pods: Api<Pod> = Api::all(client.clone());
    let mut holders = Holders { domains: domains(client).await?, ..Holders::default() };
    for claim in list("resourceclaims", &claims, ListParams::default()).await? {
        add_claim(&mut holders, &claim, nodes);
    }
    // On a node that has left, resources are of another device plugin.
    let left = nodes_that_left(client).await?;
    let counted: BTreeSet<String> = nodes.difference(&left).cloned().collect();
    for pod in list("pods", &pods, ListParams::default()).await? {
        if has_plugin_gpus(&pod, &counted) {
            holders.pods.insert(full_name(&pod.metadata));
        }
    }
    Ok(holders)
}

async fn nodes_that_left(client: &Client) -> Result<BTreeSet<String>, ViewError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let labelled = ListParams::default().labels(&format!("{LABEL_MODE}={MODE_NONE}"));
    let found = list("nodes", &nodes, labelled).await?;
    Ok(found.into_iter().filter_map(|node| node.metadata.name).collect())
}

fn add_claim(holders: &mut Holders, claim: &ResourceClaim, nodes: &BTreeSet<String>) {
    let Some(status) = &claim.status else { return };
    let devices = status.allocation.as_ref().and_then(|allocation| allocation.devices.as_ref());
    let mut results = devices.into_iter().flat_map(|devices| devices.results.iter().flatten());
    let is_ours = results.any(|result| {
        [DRIVER, DRIVER_COMPUTE_DOMAIN].contains(&result.driver.as_str())
            && nodes.contains(&result.pool)
    });
    if !is_ours {
        return;
    }
    let namespace = claim.metadata.namespace.clone().unwrap_or_default();
    let users = status.reserved_for.iter().flatten().filter(|user| user.resource == "pods");
    let users: Vec<String> = users.map(|user| format!("{namespace}/{}", user.name)).collect();
    if users.is_empty() {
        holders.idle_claims.insert(full_name(&claim.metadata));
    }
    holders.pods.extend(users);
}

/// Whether a pod that has not ended asks for a resource of NVIDIA's on one of the nodes.
fn has_plugin_gpus(pod: &Pod, nodes: &BTreeSet<String>) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let Some(spec) = &pod.spec else { return false };
    let is_here = spec.node_name.as_ref().is_some_and(|node| nodes.contains(node));
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let limits = containers.filter_map(|container| container.resources.as_ref()?.limits.as_ref());
    is_here
        && !matches!(phase, Some("Succeeded" | "Failed"))
        && limits.flat_map(BTreeMap::keys).any(|name| name.starts_with("nvidia.com/"))
}

async fn domains(client: &Client) -> Result<BTreeSet<String>, ViewError> {
    let api = dynamic(client, "resource.nvidia.com/v1beta1", "ComputeDomain", "computedomains");
    match list("computedomains", &api, ListParams::default()).await {
        Ok(found) => Ok(found.iter().map(|domain| full_name(&domain.metadata)).collect()),
        Err(ViewError::Refused { code: 404, .. }) => Ok(BTreeSet::new()),
        Err(error) => Err(error),
    }
}

fn full_name(meta: &kube::core::ObjectMeta) -> String {
    let of = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", of(&meta.namespace), of(&meta.name))
}

#[cfg(test)]
mod tests;
