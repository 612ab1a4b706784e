//! Queries to Octavo's scheduler: why a pod is where it is or waits, and the input of its
//! decisions.
//!
//! The scheduler is the holder of a [`Lease`](LeaseName). A holder that is no pod annotates the lease
//! with its address and is asked there. Pods are reached through the API server's proxy, with the
//! right to `get` `pods/proxy`. Where they serve their loopback only, as with the chart's defaults, a
//! port-forward is made, with the right to `create` `pods/portforward`. Only the leader among them
//! decides.

mod lease;
mod text;

use std::str::FromStr;

use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};
use octavo_engine::explain::{Explanation, PreemptionHint};
use octavo_kube_io::admin::LOOPBACK_ONLY;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use self::lease::LeaseHolder;
use crate::error::ViewError;
use crate::port_forward::PortForwardError;
use crate::snapshot::ObjectName;
use crate::{address, port_forward};

pub(crate) use lease::holder as lease_holder;
pub use lease::{LeaseName, LeaseNameError, LeaseProblem};
pub(crate) use text::explanation_lines;
pub use text::{GangTextOptions, render};

/// Labels of the scheduler's pods, for any release name.
const SCHEDULER_LABELS: &str =
    "app.kubernetes.io/part-of=octavo,app.kubernetes.io/component=scheduler";
/// Name of the port of its admin server.
const PORT_NAME: &str = "metrics";
/// The metric line of the leader.
const LEADER_METRIC: &str = "octavo_scheduler_leader 1";
/// `spec.schedulerName` of pods that Kubernetes' own scheduler places.
pub const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// Where a scheduler's admin server is: `HOST:PORT`, or a URL before its paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerAddress(http::Uri);

/// The text is no such address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not an address of a scheduler: give HOST:PORT or http://HOST:PORT, as in its --metrics-listen"
)]
pub struct SchedulerAddressError(String);

/// Options that select the scheduler to ask.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Octavo's scheduler")]
pub struct SchedulerSelection {
    /// Ask the scheduler that listens at HOST:PORT, and not the holder of the Lease
    #[arg(long, value_name = "ADDRESS")]
    pub scheduler: Option<SchedulerAddress>,
    /// Ask the holder of this Lease [default: octavo-system/octavo-scheduler, else the chart's pods]
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub scheduler_lease: Option<LeaseName>,
}

/// A scheduler that can be asked.
#[derive(Clone)]
pub struct Scheduler {
    client: Client,
    /// Path prefix of the admin server.
    prefix: String,
    name: String,
    /// The pod that it is, for port-forwards.
    pod: Option<PodPort>,
    /// The lease that gave the address.
    lease: Option<LeaseName>,
}

/// A port of a pod.
#[derive(Clone)]
struct PodPort {
    namespace: String,
    name: String,
    port: u16,
}

/// The kind of a question's subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A pod.
    Pod,
    /// A gang, by the object that announces it.
    Gang,
}

/// A scheduler's explanation of a pod or a gang.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SchedulerExplanation {
    /// Why it waits; absent if it does not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<PendingReason>,
    /// The last decision; absent if there was none since the scheduler started, or if it was
    /// dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Explanation>,
    /// The gang that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its node, if it is placed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// If it runs in a place that is kept for another entry: the name of that entry, and when the pod is evicted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loan: Option<String>,
    /// After a refusal: the victims that would make room for it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disturbance: Option<PreemptionHint>,
    /// A note on the search for victims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance_note: Option<String>,
    /// For a pod that waits for GPUs: infeasible nodes with GPUs.
    #[serde(default, rename = "leftOut", skip_serializing_if = "Vec::is_empty")]
    pub infeasible_nodes: Vec<InfeasibleNodes>,
}

/// Infeasible nodes with GPUs, for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InfeasibleNodes {
    /// One word.
    pub reason: String,
    /// How many nodes.
    pub nodes: usize,
    /// Which ones and why.
    pub message: String,
}

/// Why a pod or gang waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingReason {
    /// One word.
    pub reason: String,
    /// In words.
    pub message: String,
}

/// Where a gang stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GangExplanation {
    /// Namespace.
    pub namespace: String,
    /// Name of the object that announces it.
    pub name: String,
    /// Whether it waits.
    pub waits: bool,
    /// The scheduler that was asked: a pod or an address.
    pub scheduler: String,
    /// The scheduler's explanation.
    pub scheduler_says: SchedulerExplanation,
}

impl FromStr for SchedulerAddress {
    type Err = SchedulerAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        address::parse(text).map(Self).ok_or_else(|| SchedulerAddressError(text.to_owned()))
    }
}

impl Subject {
    /// The key in a question.
    fn key(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Gang => "podgroup",
        }
    }
}

impl SchedulerSelection {
    /// Whether the user selected a scheduler.
    pub fn is_explicit(&self) -> bool {
        self.scheduler.is_some() || self.scheduler_lease.is_some()
    }

    /// Finds the selected scheduler.
    pub async fn find(&self, client: &Client) -> Result<Scheduler, ViewError> {
        match &self.scheduler {
            Some(address) => Scheduler::at(address),
            None => Scheduler::find(client, self.scheduler_lease.as_ref(), Timestamp::now()).await,
        }
    }
}

impl Scheduler {
    /// The scheduler at an address. No request is sent yet.
    pub fn at(address: &SchedulerAddress) -> Result<Self, ViewError> {
        let SchedulerAddress(uri) = address;
        let name = format!("at {}", uri.to_string().trim_end_matches('/'));
        match address::client(uri) {
            Ok(client) => Ok(Self { client, prefix: String::new(), name, pod: None, lease: None }),
            Err(error) => {
                Err(ViewError::SchedulerUnreachable { scheduler: name, message: error.to_string() })
            }
        }
    }

    /// Finds the scheduler that holds the lease. If the user named no lease and the default one gives
    /// no holder, the cluster's pods are searched: their lease may have another name.
    async fn find(
        client: &Client,
        named: Option<&LeaseName>,
        now: Timestamp,
    ) -> Result<Self, ViewError> {
        let lease = named.cloned().unwrap_or_default();
        let holder = lease::holder(client, &lease, now).await?;
        match holder {
            Ok(LeaseHolder { address: Some(address), .. }) => {
                Ok(Self { lease: Some(lease), ..Self::at(&address)? })
            }
            Ok(LeaseHolder { identity, address: None }) => {
                let pod = format!("{}/{identity}", lease.namespace());
                let found = Self::find_pod(client, Some(&pod)).await?;
                found.ok_or(ViewError::NoSchedulerPod { lease, holder: identity })
            }
            Err(problem) if named.is_some() => Err(ViewError::NoLeaseHolder { lease, problem }),
            Err(problem) => {
                let found = Self::find_pod(client, None).await?;
                found.ok_or(ViewError::NoScheduler { lease, problem })
            }
        }
    }

    /// Finds the leader among the cluster's pods, the expected one first. If no pod reports that it
    /// leads, the first that responds is used.
    async fn find_pod(client: &Client, expected: Option<&str>) -> Result<Option<Self>, ViewError> {
        let api = Api::<Pod>::all(client.clone());
        let list = api.list(&ListParams::default().labels(SCHEDULER_LABELS)).await;
        let list = list.map_err(|error| ViewError::api("pods", error))?;
        let mut found: Vec<_> =
            list.items.into_iter().filter_map(|pod| Self::of_pod(client, pod)).collect();
        found.sort_by_key(|candidate| expected != Some(&candidate.name));
        let (mut answers, mut problem) = (None, None);
        for candidate in found {
            match candidate.get("/metrics").await {
                Ok(text) if text.lines().any(|line| line == LEADER_METRIC) => {
                    return Ok(Some(candidate));
                }
                Ok(_) => answers = answers.or(Some(candidate)),
                Err(error) => problem = Some(error),
            }
        }
        match (answers, problem) {
            (None, Some(problem)) => Err(problem),
            (answers, _) => Ok(answers),
        }
    }

    fn of_pod(client: &Client, pod: Pod) -> Option<Self> {
        let containers = pod.spec?.containers;
        let mut ports = containers.iter().flat_map(|container| container.ports.iter().flatten());
        let port = ports.find(|port| port.name.as_deref() == Some(PORT_NAME))?.container_port;
        let (namespace, name) = (pod.metadata.namespace?, pod.metadata.name?);
        if pod.status?.phase? != "Running" {
            return None;
        }
        Some(Self {
            client: client.clone(),
            prefix: format!("/api/v1/namespaces/{namespace}/pods/{name}:{port}/proxy"),
            pod: u16::try_from(port).ok().map(|port| PodPort {
                namespace: namespace.clone(),
                name: name.clone(),
                port,
            }),
            name: format!("{namespace}/{name}"),
            lease: None,
        })
    }

    /// Its name: a pod or an address.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why a pod or gang is where it is, or waits.
    pub async fn explain(
        &self,
        subject: Subject,
        name: &ObjectName,
    ) -> Result<SchedulerExplanation, ViewError> {
        let text = self.get(&format!("/explain?{}={name}", subject.key())).await?;
        self.parse(&text)
    }

    /// The input of decisions: the document that `octavo sim whatif --cluster` reads.
    pub async fn snapshot<T: DeserializeOwned>(&self) -> Result<T, ViewError> {
        self.parse(&self.get("/snapshot").await?)
    }

    /// The last recorded decision on a single pod or a gang, with its input.
    pub async fn decision<T: DeserializeOwned>(
        &self,
        subject: Subject,
        name: &ObjectName,
    ) -> Result<T, ViewError> {
        self.parse(&self.get(&format!("/snapshot?{}={name}", subject.key())).await?)
    }

    fn parse<T: DeserializeOwned>(&self, text: &str) -> Result<T, ViewError> {
        serde_json::from_str(text).map_err(|error| ViewError::SchedulerForm {
            scheduler: self.name.clone(),
            message: error.to_string(),
        })
    }

    async fn get(&self, path: &str) -> Result<String, ViewError> {
        let answer =
            address::get_with_status(&self.client, &format!("{}{path}", self.prefix)).await;
        let scheduler = self.name.clone();
        let (mut code, mut text) = answer.map_err(|error| {
            let (scheduler, mut message) = (scheduler.clone(), error_chain(&error));
            if let Some(lease) = &self.lease {
                message = format!("{message}; the Lease {lease} gives this address");
            }
            ViewError::SchedulerUnreachable { scheduler, message }
        })?;
        if let Some(PodPort { namespace, name, port }) = &self.pod
            && text.contains(LOOPBACK_ONLY)
        {
            let answer = port_forward::get(&self.client, namespace, name, *port, path).await;
            (code, text) = answer.map_err(|error| match error {
                PortForwardError::Kube(kube::Error::Api(status)) if status.code == 403 => {
                    let message = status.message.clone();
                    ViewError::Refused { kind: "pods/portforward", code: 403, message }
                }
                error => {
                    let (scheduler, message) = (scheduler.clone(), error.to_string());
                    ViewError::SchedulerUnreachable { scheduler, message }
                }
            })?;
        }
        if code.is_success() {
            return Ok(text);
        }
        let code = code.as_u16();
        // The API server between answers by a `Status`, the scheduler in plain words.
        match serde_json::from_str::<Status>(&text) {
            Ok(Status { message }) if code == 403 => {
                Err(ViewError::Refused { kind: "pods/proxy", code, message })
            }
            Ok(Status { message }) => Err(ViewError::SchedulerUnreachable { scheduler, message }),
            Err(_) => {
                let message = text.trim().to_owned();
                Err(ViewError::SchedulerSays { scheduler, code, message })
            }
        }
    }
}

/// An API server's response if it cannot proxy the request.
#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    message: String,
}

/// An error with its causes, which are more specific.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = error.source();
    }
    words
}

#[cfg(test)]
mod tests;
