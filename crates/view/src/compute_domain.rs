//! What a `ComputeDomain` and its pods wait for, in the order of a pod's start.
//!
//! | module | purpose |
//! |---|---|
//! | `read`, `convert` | read `facts` from the API server |
//! | `members` | the first step that a node lacks; `daemons` has those of its daemon's pod |
//! | `pods` | pods without a node, and pods that do not start |
//! | `whole` | what concerns the domain as a whole |
//! | `text` | the report for people |

mod convert;
mod daemons;
mod facts;
#[cfg(test)]
mod fixtures;
mod members;
mod pods;
mod read;
#[cfg(test)]
mod tests;
mod text;
mod whole;

use jiff::Timestamp;
use octavo_api::compute_domain::Readiness;
use serde::Serialize;

use crate::snapshot::{Condition, Gap};
use crate::usage::natural_sort_key;
use facts::DomainFacts;
use members::Member;

pub(crate) use read::read;
pub use text::{DomainTextOptions, render};

/// What a domain waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DomainExplanation {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID, as in the label of its nodes.
    pub uid: String,
    /// When it was created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Whether something is missing.
    pub waits: bool,
    /// Its state.
    pub state: DomainState,
    /// Who runs its IMEX services, and what keeps domains apart: the settings of the controller.
    pub services: String,
    /// The daemons for which its pods wait.
    pub pods_wait_for: String,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// The nodes with an allocated channel, by name.
    pub nodes: Vec<NodeReport>,
    /// What is missing, the domain first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Missing>,
    /// What is not as people may expect it, and holds no pod back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
    /// Objects that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gaps: Vec<Gap>,
}

/// The state of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DomainState {
    /// Its status says that it is ready.
    Ready,
    /// It is not.
    NotReady,
    /// It is being deleted.
    Deleting,
}

/// A node with an allocated channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// The node.
    pub node: String,
    /// Its clique.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clique: Option<String>,
    /// Its place in the clique's list of IMEX nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<i64>,
    /// The domain's channel in the clique, where domains share the clique.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<u32>,
    /// The pod of its daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub daemon: Option<String>,
    /// Whether the domain's status says that it is ready.
    pub ready: bool,
    /// The first step that is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<Step>,
    /// The claims with its channel.
    pub claims: Vec<String>,
    /// The domain's pods there.
    pub pods: Vec<PodReport>,
}

/// A pod on a node of the domain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodReport {
    /// Its name, in the domain's namespace.
    pub name: String,
    /// Its phase.
    pub phase: String,
}

/// A step of a pod's start, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// What the domain as a whole needs.
    Domain,
    /// A scheduler allocates the pod's claim.
    Claim,
    /// The controller labels the node.
    Label,
    /// The daemon's pod runs there.
    Daemon,
    /// The daemon writes its entry into the clique.
    Entry,
    /// The controller gives the entry an index.
    Index,
    /// The daemon is ready.
    Ready,
    /// The controller gives the domain a channel in the clique, where domains share it.
    Channel,
    /// The controller copies the entry to the domain's status.
    Status,
    /// The pod runs.
    Pod,
}

/// Something that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Missing {
    /// The step that waits for it.
    pub step: Step,
    /// What it is about: `domain`, `node NAME`, or `pods NAMES`.
    pub subject: String,
    /// What is missing.
    pub problem: String,
    /// Why, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What to do.
    pub remedy: String,
}

/// Something to know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Note {
    /// What is so.
    pub text: String,
    /// What to do, if it is not as wanted.
    pub remedy: String,
}

impl Step {
    /// The step in tables: what is missing.
    pub fn word(self) -> &'static str {
        match self {
            Self::Domain => "domain",
            Self::Claim => "claim",
            Self::Label => "node label",
            Self::Daemon => "daemon pod",
            Self::Entry => "clique entry",
            Self::Index => "index",
            Self::Ready => "IMEX service",
            Self::Channel => "channel",
            Self::Status => "domain status",
            Self::Pod => "pod",
        }
    }
}

/// Explains a domain.
pub(crate) fn explain(facts: &DomainFacts) -> DomainExplanation {
    let mut members = Member::all(facts);
    members.sort_by_cached_key(|member| natural_sort_key(member.name));
    let mut missing = pods::without_node(facts);
    let mut nodes = Vec::with_capacity(members.len());
    for member in &members {
        let first = member.first_missing(facts);
        nodes.push(NodeReport {
            node: member.name.to_owned(),
            clique: member.clique().map(str::to_owned),
            index: member.index(),
            channel: member.channel(facts),
            daemon: member.daemon.map(facts::DomainPod::full_name),
            ready: member.is_ready(),
            missing: first.as_ref().map(|first| first.step),
            claims: member.claims.iter().map(|claim| claim.name.clone()).collect(),
            pods: member
                .pods
                .iter()
                .map(|pod| PodReport { name: pod.name.clone(), phase: pod.phase.clone() })
                .collect(),
        });
        missing.extend(first);
    }
    let is_ready = facts.status.status == Readiness::Ready && !facts.is_deleting;
    let mut of_domain = whole::missing(facts, &members, &missing);
    of_domain.append(&mut missing);
    let conditions = facts.status.conditions.iter().map(|found| Condition {
        kind: found.type_.clone(),
        status: found.status.clone(),
        reason: found.reason.clone(),
        message: found.message.clone(),
    });
    DomainExplanation {
        namespace: facts.name.namespace.clone(),
        name: facts.name.name.clone(),
        uid: facts.uid.clone(),
        created: facts.created,
        waits: !is_ready || !of_domain.is_empty(),
        state: match (facts.is_deleting, is_ready) {
            (true, _) => DomainState::Deleting,
            (false, true) => DomainState::Ready,
            (false, false) => DomainState::NotReady,
        },
        services: facts.services.to_string(),
        pods_wait_for: whole::pods_wait_for(facts),
        conditions: conditions.collect(),
        nodes,
        notes: whole::notes(facts, &members, !of_domain.is_empty()),
        missing: of_domain,
        gaps: facts.gaps.clone(),
    }
}
