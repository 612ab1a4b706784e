//! The objects of a domain, as plain values.

use std::collections::BTreeMap;

use jiff::Timestamp;
use octavo_api::compute_domain::{ComputeDomainDaemon, ComputeDomainStatus};
use octavo_api::imex::ImexServices;
use octavo_api::names::SHARED_IMEX_DOMAIN;

use crate::controller::Controller;
use crate::explain::Event;
use crate::snapshot::{Condition, Gap, ObjectName};

/// What is known of a domain. A list that may be absent could not be read.
#[derive(Clone, Debug)]
pub(crate) struct DomainFacts {
    pub(crate) name: ObjectName,
    pub(crate) uid: String,
    pub(crate) created: Option<Timestamp>,
    pub(crate) is_deleting: bool,
    pub(crate) finalizers: Vec<String>,
    /// `spec.channel.resourceClaimTemplate.name`.
    pub(crate) template: String,
    pub(crate) num_nodes: i64,
    /// The annotation `octavo.dev/ready-when`, as written.
    pub(crate) ready_when: Option<String>,
    pub(crate) status: ComputeDomainStatus,
    /// The IMEX services of its nodes.
    pub(crate) services: ImexServices,
    pub(crate) template_state: Option<TemplateState>,
    pub(crate) controller: Controller,
    /// Its claims in its own namespace.
    pub(crate) claims: Vec<DomainClaim>,
    /// The pods with one of its claims, or its template.
    pub(crate) pods: Option<Vec<DomainPod>>,
    /// Its members, and the nodes with its label. A member that is absent does not exist.
    pub(crate) nodes: Option<BTreeMap<String, NodeFacts>>,
    pub(crate) daemon_set: Option<DaemonSetFacts>,
    /// The pods of its daemons.
    pub(crate) daemons: Option<Vec<DomainPod>>,
    pub(crate) cliques: Option<Vec<CliqueFacts>>,
    pub(crate) gaps: Vec<Gap>,
}

/// The template in the domain's namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TemplateState {
    /// It is the domain's.
    Own,
    /// It does not exist.
    Missing,
    /// It is of the domain with this UID, or of none.
    Foreign(Option<String>),
}

/// A claim on a channel of the domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DomainClaim {
    pub(crate) name: String,
    /// The node of its channel, if it is allocated.
    pub(crate) node: Option<String>,
    /// The pods that may use it.
    pub(crate) reserved_for: Vec<String>,
}

/// A pod of the domain, or of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DomainPod {
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Its node. That of a daemon is known before it is scheduled.
    pub(crate) node: Option<String>,
    pub(crate) is_bound: bool,
    pub(crate) phase: String,
    pub(crate) is_ready: bool,
    pub(crate) is_deleting: bool,
    pub(crate) ip: String,
    /// Its scheduling gates.
    pub(crate) gates: Vec<String>,
    /// Condition `PodScheduled`.
    pub(crate) scheduled: Option<Condition>,
    /// Why its containers do not run.
    pub(crate) trouble: Option<String>,
    pub(crate) restarts: i32,
    /// Names of its claims.
    pub(crate) claims: Vec<String>,
    /// Names of the templates of its claims.
    pub(crate) templates: Vec<String>,
    /// Slots in a daemon's list of nodes.
    pub(crate) slots: Option<usize>,
    /// The last warning about it.
    pub(crate) warning: Option<Event>,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NodeFacts {
    pub(crate) is_ready: bool,
    /// Its label `nvidia.com/gpu.clique`.
    pub(crate) clique: Option<String>,
    /// UID of the domain in its label.
    pub(crate) domain: Option<String>,
}

/// The `DaemonSet` of the domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DaemonSetFacts {
    pub(crate) exists: bool,
    pub(crate) desired: i32,
    /// The last warning about it.
    pub(crate) warning: Option<Event>,
}

/// A clique of the domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CliqueFacts {
    /// Its id, from its name.
    pub(crate) id: String,
    pub(crate) daemons: Vec<ComputeDomainDaemon>,
}

impl DomainFacts {
    /// UID in the names of its daemons and cliques: its own, or what stands for all domains.
    pub(crate) fn daemons_uid(&self) -> &str {
        match self.services {
            ImexServices::PerClique => SHARED_IMEX_DOMAIN,
            ImexServices::PerDomain | ImexServices::OfHost => &self.uid,
        }
    }
}

impl DomainPod {
    /// Namespace and name.
    pub(crate) fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether it has ended, well or not.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(&*self.phase, "Succeeded" | "Failed")
    }

    /// The last warning about it, as a sentence.
    pub(crate) fn warning_text(&self) -> Option<String> {
        self.warning.as_ref().map(warning_text)
    }
}

/// An event as a sentence.
pub(crate) fn warning_text(event: &Event) -> String {
    format!("{}: {}", event.reason, event.message.trim())
}
