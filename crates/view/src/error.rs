//! Errors of commands that read a cluster.

use std::io;
use std::time::Duration;

use octavo_kube_io::client::ClientError;
use thiserror::Error;

use crate::health::HealthError;
use crate::scheduler::{LeaseName, LeaseProblem};
use crate::snapshot::ObjectName;

/// A failure of a command that reads a cluster.
#[derive(Debug, Error)]
pub enum ViewError {
    /// No client: the kubeconfig is missing or unusable.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The API server refused or failed.
    #[error("the API server denied reading {kind}: {message}")]
    Refused {
        /// Resource, in the plural.
        kind: &'static str,
        /// HTTP status.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// The API server could not be reached.
    #[error("{kind} could not be read")]
    Unreachable {
        /// Resource, in the plural.
        kind: &'static str,
        /// Why.
        source: kube::Error,
    },
    /// Reading took too long.
    #[error("the cluster could not be read within {limit:?}")]
    Timeout {
        /// The limit.
        limit: Duration,
    },
    /// The namespace does not exist.
    #[error("there is no namespace {namespace:?}")]
    NoNamespace {
        /// Its name.
        namespace: String,
    },
    /// The pod does not exist.
    #[error("there is no pod {:?} in namespace {:?}", pod.name, pod.namespace)]
    NoPod {
        /// Its name.
        pod: ObjectName,
        /// Namespaces that have a pod of this name.
        elsewhere: Vec<String>,
    },
    /// The `ComputeDomain` does not exist.
    #[error("there is no ComputeDomain {:?} in namespace {:?}", domain.name, domain.namespace)]
    NoDomain {
        /// Its name.
        domain: ObjectName,
        /// Those of the namespace.
        known: Vec<String>,
        /// Namespaces that have one of this name.
        elsewhere: Vec<String>,
    },
    /// The cluster does not serve `ComputeDomains`.
    #[error(
        "the cluster has no CustomResourceDefinition of ComputeDomains (resource.nvidia.com/v1beta1)"
    )]
    NoDomainKind,
    /// A node that was named has no devices.
    #[error("no devices are published for node {node:?}")]
    NoNode {
        /// Its name.
        node: String,
    },
    /// A node that was named does not exist.
    #[error("there is no node {node:?}")]
    UnknownNode {
        /// Its name.
        node: String,
    },
    /// Agents did not release the driver, or did not open it again.
    #[error("the agents of these nodes have not {done} the driver in time: {nodes}")]
    LateAgents {
        /// What they should have done with it.
        done: &'static str,
        /// The nodes with what is known of them.
        nodes: String,
    },
    /// No agent runs as a pod, so there is no image for probe pods.
    #[error("there is no agent pod whose image a probe pod could have")]
    NoImage,
    /// Neither the lease nor a pod leads to Octavo's scheduler.
    #[error("the cluster has no pod of Octavo's scheduler, and the Lease {lease} {problem}")]
    NoScheduler {
        /// The lease.
        lease: LeaseName,
        /// Why it names no scheduler.
        problem: LeaseProblem,
    },
    /// The lease that the user named does not lead to a scheduler.
    #[error("the Lease {lease} names no scheduler: it {problem}")]
    NoLeaseHolder {
        /// The lease.
        lease: LeaseName,
        /// Why it names none.
        problem: LeaseProblem,
    },
    /// The lease's holder has no address, and no pod has the scheduler's labels.
    #[error(
        "the scheduler {holder} holds the Lease {lease}, but the Lease has no address and the cluster no pod of \
         Octavo's scheduler"
    )]
    NoSchedulerPod {
        /// The lease.
        lease: LeaseName,
        /// Its holder.
        holder: String,
    },
    /// The scheduler could not be asked.
    #[error("the scheduler {scheduler} could not be asked: {message}")]
    SchedulerUnreachable {
        /// Its pod or address.
        scheduler: String,
        /// Why.
        message: String,
    },
    /// The scheduler responded with an error.
    #[error("the scheduler {scheduler} responded: {message}")]
    SchedulerSays {
        /// Its pod or address.
        scheduler: String,
        /// HTTP status.
        code: u16,
        /// Its words.
        message: String,
    },
    /// The scheduler's response has another format: it has another version.
    #[error("the response of the scheduler {scheduler} cannot be parsed: {message}")]
    SchedulerForm {
        /// Its pod or address.
        scheduler: String,
        /// Where and why.
        message: String,
    },
    /// `octavo health` failed.
    #[error(transparent)]
    Health(#[from] HealthError),
    /// Only pods, gangs, `ComputeDomains` and devices can be explained.
    #[error("{kind:?} cannot be explained")]
    Kind {
        /// The requested kind.
        kind: String,
    },
    /// A kind without a name, or with more than one.
    #[error("the name of the {kind} is missing")]
    NoName {
        /// The requested kind.
        kind: String,
    },
    /// The report could not be written to standard output.
    #[error("the report could not be written")]
    Output(#[from] io::Error),
    /// The report could not be put into JSON or YAML.
    #[error("the report could not be written as {format}: {message}")]
    Encode {
        /// Format.
        format: &'static str,
        /// Why.
        message: String,
    },
}

impl ViewError {
    /// Whether no configuration names a cluster.
    pub fn is_without_cluster(&self) -> bool {
        matches!(self, Self::Client(ClientError::Nowhere(_)))
    }

    /// Whether the command line was wrong, and not the cluster.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Kind { .. } | Self::NoName { .. } => true,
            Self::Health(error) => error.is_usage(),
            _ => false,
        }
    }

    /// What the user can do about the error.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Client(ClientError::Kubeconfig { .. }) => {
                Some("`kubectl config view` shows its content; --context selects another context".to_owned())
            }
            Self::Refused { code: 401, .. } => {
                Some("the credentials of this context were not accepted: log in again".to_owned())
            }
            Self::Refused { kind, code: 403, .. } => {
                Some(format!("ask an administrator for the right to read {kind}"))
            }
            Self::Refused { kind, code: 404, .. } if kind.starts_with("resource") => Some(
                "the cluster does not serve resource.k8s.io/v1: Kubernetes 1.34 or later is needed"
                    .to_owned(),
            ),
            Self::Unreachable { .. } => Some(
                "check that the cluster is up and that the kubeconfig names the right one"
                    .to_owned(),
            ),
            Self::Timeout { .. } => Some(
                "check that the cluster is up; a very large one takes longer: \
                 --request-timeout 5m"
                    .to_owned(),
            ),
            Self::NoNamespace { .. } => {
                Some("`kubectl get namespaces` lists them; -n selects one".to_owned())
            }
            Self::NoPod { elsewhere, pod } if elsewhere.is_empty() => {
                Some(format!("`kubectl get pods -n {}` lists the pods there", pod.namespace))
            }
            Self::NoPod { elsewhere, .. } => {
                Some(format!("a pod of this name is in: {} (use -n)", elsewhere.join(", ")))
            }
            Self::NoDomain { elsewhere, .. } if !elsewhere.is_empty() => Some(format!(
                "a ComputeDomain of this name is in: {} (use -n)",
                elsewhere.join(", ")
            )),
            Self::NoDomain { known, .. } if !known.is_empty() => {
                Some(format!("those of this namespace are: {}", known.join(", ")))
            }
            Self::NoDomain { .. } => {
                Some("`kubectl get computedomains -A` lists those of all namespaces".to_owned())
            }
            Self::NoDomainKind => {
                Some("install the chart with computeDomains.enabled=true".to_owned())
            }
            Self::NoNode { .. } => Some(
                "`octavo top` without names lists all nodes with devices; check that the agent runs \
                 on the node"
                    .to_owned(),
            ),
            Self::UnknownNode { .. } => Some("`kubectl get nodes` lists them".to_owned()),
            Self::LateAgents { .. } => Some(
                "see the agents' logs, and `octavo doctor`; more time: --wait-timeout 10m".to_owned(),
            ),
            Self::NoImage => Some("name an image with octavo: --image REGISTRY/octavo:VERSION".to_owned()),
            Self::NoScheduler { lease, problem } | Self::NoLeaseHolder { lease, problem } => {
                Some(problem.hint(lease))
            }
            Self::NoSchedulerPod { .. } => Some(
                "give --scheduler HOST:PORT with the address of its --metrics-listen; a scheduler with --metrics-listen \
                 none cannot be asked"
                    .to_owned(),
            ),
            Self::SchedulerUnreachable { .. } => Some(
                "its --metrics-listen must be reachable from here: the chart's pods listen on all \
                 addresses (scheduler.metricsPort), a scheduler started by hand only on its own machine; \
                 otherwise use `kubectl port-forward` to its pod and --scheduler 127.0.0.1:PORT"
                    .to_owned(),
            ),
            Self::SchedulerForm { .. } => {
                Some("use the octavo of the scheduler's version (`octavo version`)".to_owned())
            }
            Self::Kind { .. } | Self::NoName { .. } => Some(
                "write `octavo explain pod NAME`, `octavo explain podgroup NAME`, `octavo explain computedomain NAME` or \
                 `octavo explain device NODE/GPU`"
                    .to_owned(),
            ),
            Self::Health(error) => error.hint(),
            Self::Client(_)
            | Self::Refused { .. }
            | Self::SchedulerSays { .. }
            | Self::Output(_)
            | Self::Encode { .. } => None,
        }
    }

    /// The server's words, if it was a right that was missing.
    pub(crate) fn forbidden(&self) -> Option<String> {
        match self {
            Self::Refused { code: 403, message, .. } => Some(message.clone()),
            _ => None,
        }
    }

    /// Classifies a client's error by what the user can do about it.
    pub fn api(kind: &'static str, error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                Self::Refused { kind, code: status.code, message: status.message.clone() }
            }
            source => Self::Unreachable { kind, source },
        }
    }
}
