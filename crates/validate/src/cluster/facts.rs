//! Reads what a validation needs to know of a cluster: nodes, slices, and how its agents are installed.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PodSpec};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use octavo_api::names::DRIVER;
use octavo_view::ViewError;
use octavo_view::doctor::GPU_LABELS;
use octavo_view::fetch::list;
use serde::Deserialize;

use crate::offer::Offer;
use crate::slices::slices;

/// Labels of the agents' `DaemonSet`, for any release name.
const AGENTS: &str = "app.kubernetes.io/part-of=octavo,app.kubernetes.io/component=agent";
/// The agent's config file in its `ConfigMap`.
const CONFIG_FILE: &str = "agent.yaml";

/// What is known of a cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// All nodes, by name.
    pub(super) nodes: BTreeMap<String, NodeFacts>,
    /// How the agents are installed; `None` if they are no pods.
    pub(super) agent: Option<AgentFacts>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeFacts {
    /// Whether it has a label of a GPU, or an offer.
    pub(super) has_gpu: bool,
    /// Whether its condition `Ready` is true.
    pub(super) is_ready: bool,
    /// What it offers.
    pub(super) offer: Option<Offer>,
}

/// How the agents are installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentFacts {
    /// Their namespace.
    pub(super) namespace: String,
    /// Their image.
    pub(super) image: String,
    /// When the image is pulled.
    pub(super) pull_policy: Option<String>,
    /// Names of Secrets to pull it.
    pub(super) pull_secrets: Vec<String>,
    /// Their account.
    pub(super) service_account: Option<String>,
    /// The driver's root on the nodes.
    pub(super) driver_root: Option<String>,
}

/// Reads the facts.
pub(super) async fn read(client: &Client) -> Result<Facts, ViewError> {
    let nodes: Vec<Node> = list("nodes", &Api::all(client.clone()), ListParams::default()).await?;
    let slices = slices(client, &format!("spec.driver={DRIVER}")).await?;
    let nodes = nodes.iter().map(|node| (node.name_any(), node_facts(node, &slices))).collect();
    Ok(Facts { nodes, agent: agent(client).await? })
}

fn node_facts(node: &Node, slices: &[ResourceSlice]) -> NodeFacts {
    let offer = Offer::of(node, slices);
    let is_labelled = GPU_LABELS
        .iter()
        .any(|label| node.labels().get(*label).is_some_and(|value| value == "true"));
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let is_ready = conditions.into_iter().any(|it| it.type_ == "Ready" && it.status == "True");
    NodeFacts { has_gpu: is_labelled || offer.is_some(), is_ready, offer }
}

/// The first installation of agents. Without the right to read it, the user names image and namespace.
async fn agent(client: &Client) -> Result<Option<AgentFacts>, ViewError> {
    let sets: Api<DaemonSet> = Api::all(client.clone());
    let sets = match list("daemonsets", &sets, ListParams::default().labels(AGENTS)).await {
        Err(ViewError::Refused { code: 403, .. }) => return Ok(None),
        sets => sets?,
    };
    let Some(set) = sets.into_iter().next() else { return Ok(None) };
    let namespace = set.namespace().unwrap_or_default();
    let Some(pod) = set.spec.and_then(|spec| spec.template.spec) else { return Ok(None) };
    let driver_root = driver_root(client, &namespace, &pod).await?;
    Ok(agent_facts(namespace, &pod, driver_root))
}

fn agent_facts(
    namespace: String,
    pod: &PodSpec,
    driver_root: Option<String>,
) -> Option<AgentFacts> {
    let container = pod.containers.first()?;
    let secrets = pod.image_pull_secrets.iter().flatten();
    Some(AgentFacts {
        namespace,
        image: container.image.clone()?,
        pull_policy: container.image_pull_policy.clone(),
        pull_secrets: secrets.map(|secret| secret.name.clone()).collect(),
        service_account: pod.service_account_name.clone(),
        driver_root,
    })
}

/// The driver's root in the config of the agents, where the user may read it.
async fn driver_root(
    client: &Client,
    namespace: &str,
    pod: &PodSpec,
) -> Result<Option<String>, ViewError> {
    let mut volumes = pod.volumes.iter().flatten().filter(|volume| volume.name == "config");
    let Some(map) = volumes.find_map(|volume| Some(volume.config_map.as_ref()?.name.clone()))
    else {
        return Ok(None);
    };
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    match maps.get_opt(&map).await.map_err(|error| ViewError::api("configmaps", error)) {
        Err(ViewError::Refused { code: 403, .. }) => Ok(None),
        map => Ok(map?.and_then(|map| driver_root_of(map.data?.get(CONFIG_FILE)?))),
    }
}

/// The driver's root in an agent's config file.
fn driver_root_of(config: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct File {
        #[serde(rename = "driverRoot")]
        driver_root: Option<String>,
    }
    serde_saphyr::from_str::<File>(config).ok()?.driver_root
}

#[cfg(test)]
mod tests;
