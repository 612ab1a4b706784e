//! Reading the agents' metrics: through the API server's proxy or port-forward for pods, or directly.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};

use super::{AgentReadings, UnreadNode, parse};
use octavo_kube_io::admin::LOOPBACK_ONLY;

use crate::error::ViewError;
use crate::{address, port_forward};

/// Labels of the agents' pods, for any release name.
pub(crate) const AGENT_LABELS: &str =
    "app.kubernetes.io/part-of=octavo,app.kubernetes.io/component=agent";
/// Name of the port with the metrics.
const PORT_NAME: &str = "admin";
/// Agents that are read at a time.
const MAX_CONCURRENT_READS: usize = 32;

/// Where an agent serves its metrics: `HOST:PORT`, or a URL before `/metrics`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAddress(http::Uri);

/// The text is no such address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an address of an agent: give HOST:PORT or http://HOST:PORT, as in its --admin-address"
)]
pub struct AgentAddressError(String);

/// An agent that is a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
struct AgentPod {
    node: String,
    namespace: String,
    name: String,
    port: i32,
}

impl FromStr for AgentAddress {
    type Err = AgentAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        address::parse(text).map(Self).ok_or_else(|| AgentAddressError(text.to_owned()))
    }
}

/// Reads the figures of the agents of some nodes, or at some addresses.
pub async fn read(
    client: &Client,
    nodes: &BTreeSet<String>,
    addresses: &[AgentAddress],
) -> Result<AgentReadings, ViewError> {
    let mut readings = AgentReadings::default();
    if !addresses.is_empty() {
        for AgentAddress(uri) in addresses {
            match direct(uri).await {
                Ok(text) => readings.figures.extend(parse(&text)),
                Err(error) => {
                    let message = format!("the agent at {uri} does not answer: {error}");
                    readings.unread.push(UnreadNode { node: String::new(), message });
                }
            }
        }
        return Ok(readings);
    }
    if nodes.is_empty() {
        return Ok(readings);
    }
    for (node, answer) in metrics_of_nodes(client, nodes).await? {
        match answer {
            Ok(texts) => {
                for text in texts {
                    readings.figures.extend(parse(&text));
                }
            }
            Err(message) => readings.unread.push(UnreadNode { node, message }),
        }
    }
    Ok(readings)
}

/// The metrics of the agents of nodes, in Prometheus' text form; or why a node's agents cannot be asked.
///
/// # Errors
///
/// The pods cannot be listed.
pub async fn metrics_of_nodes(
    client: &Client,
    nodes: &BTreeSet<String>,
) -> Result<BTreeMap<String, Result<Vec<String>, String>>, ViewError> {
    let mut found: BTreeMap<String, Vec<AgentPod>> = BTreeMap::new();
    for pod in pods(client).await? {
        found.entry(pod.node.clone()).or_default().push(pod);
    }
    let asked = nodes.iter().map(|node| {
        let agents = found.get(node).cloned().unwrap_or_default();
        async move { (node.clone(), of_node(client, &agents).await) }
    });
    Ok(futures::stream::iter(asked).buffer_unordered(MAX_CONCURRENT_READS).collect().await)
}

/// The metrics of a node's agents. During an update there are two agents; the active one knows the
/// shares.
async fn of_node(client: &Client, agents: &[AgentPod]) -> Result<Vec<String>, String> {
    let mut texts = Vec::new();
    let mut problem = None;
    for agent in agents {
        match metrics(client, agent).await {
            Ok(text) => texts.push(text),
            Err(error) => {
                let AgentPod { namespace, name, .. } = agent;
                problem = Some(format!("agent {namespace}/{name} could not be asked: {error}"));
            }
        }
    }
    match (texts.is_empty(), problem) {
        (false, _) => Ok(texts),
        (true, Some(problem)) => Err(problem),
        (true, None) => {
            Err("it has no agent pod; name an agent outside a pod with --agent".to_owned())
        }
    }
}

/// The metrics of an agent: through the API server's proxy, or else through a port-forward. The agent may serve its loopback
/// only, and an API server may reach kubelets and no pods.
async fn metrics(client: &Client, agent: &AgentPod) -> Result<String, String> {
    let AgentPod { namespace, name, port, .. } = agent;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy/metrics");
    let error = match address::get_text(client, &path).await {
        Ok(text) => return Ok(text),
        Err(error) => error,
    };
    let is_for_loopback =
        matches!(&error, kube::Error::Api(status) if status.message.contains(LOOPBACK_ONLY));
    let Ok(port) = u16::try_from(*port) else { return Err(error.to_string()) };
    let forwarded = match port_forward::get(client, namespace, name, port, "/metrics").await {
        Ok((status, text)) if status.is_success() => return Ok(text),
        Ok((status, _)) => format!("port-forward: the pod answers {status}"),
        Err(error) => error.to_string(),
    };
    if is_for_loopback { Err(forwarded) } else { Err(format!("{error}; {forwarded}")) }
}

async fn pods(client: &Client) -> Result<Vec<AgentPod>, ViewError> {
    let api = Api::<Pod>::all(client.clone());
    let list = api.list(&ListParams::default().labels(AGENT_LABELS)).await;
    let list = list.map_err(|error| ViewError::api("pods", error))?;
    Ok(list.items.into_iter().filter_map(agent_of).collect())
}

fn agent_of(pod: Pod) -> Option<AgentPod> {
    let spec = pod.spec?;
    let ports = spec.containers.iter().flat_map(|container| container.ports.iter().flatten());
    let port =
        ports.into_iter().find(|port| port.name.as_deref() == Some(PORT_NAME))?.container_port;
    Some(AgentPod {
        node: spec.node_name?,
        namespace: pod.metadata.namespace?,
        name: pod.metadata.name?,
        port,
    })
}

async fn direct(uri: &http::Uri) -> Result<String, kube::Error> {
    address::get_text(&address::client(uri)?, "/metrics").await
}

#[cfg(test)]
mod tests;
