//! What is to be written for one domain: a pure function of what was observed.
//!
//! A plan has the writes that can be done now. Writes of one plan do not depend on each other; what must follow another write
//! is in the next plan, once that write was observed.

mod certificate;
mod channels;
mod cliques;
mod conditions;
mod labels;
mod objects;
mod reasons;
mod shared;
mod status;
mod teardown;
#[cfg(test)]
mod tests;

use octavo_api::compute_domain::{ComputeDomainChannelNumber, ComputeDomainStatus};
use octavo_api::imex::ImexServices;
use octavo_api::names::SHARED_IMEX_DOMAIN;
use serde_json::Value;

use crate::certificate::CertificateRequest;
use crate::config::Config;
use crate::view::{ChannelClaim, OwnedObject, View};
use crate::wanted::DaemonsOf;
use channels::ChannelPlan;

pub use reasons::Reason;

/// A write to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Sets the finalizers of the domain.
    SetFinalizers {
        /// Namespace of the domain.
        namespace: String,
        /// Name of the domain.
        name: String,
        /// The version to which it applies.
        resource_version: String,
        /// All finalizers.
        finalizers: Vec<String>,
    },
    /// Writes the status of the domain.
    SetStatus {
        /// Namespace of the domain.
        namespace: String,
        /// Name of the domain.
        name: String,
        /// UID of the domain.
        uid: String,
        /// The version to which it applies; `None`: any. A channel must not be taken from pods that started meanwhile.
        resource_version: Option<String>,
        /// The status. Conditions that have changed have no time yet.
        status: ComputeDomainStatus,
    },
    /// Names the domain in an annotation of a claim.
    AnnotateClaim {
        /// Namespace of the claim.
        namespace: String,
        /// Name of the claim.
        name: String,
        /// UID of the claim.
        uid: String,
        /// The domain, as `<namespace>/<name>`.
        domain: String,
    },
    /// Sets the label of a node, or removes it.
    ///
    /// A write of an earlier leader that the server holds back until its condition is true again would apply. The leader's writes
    /// end before its lease does, so the server would have to outlive the request by a whole lease.
    LabelNode {
        /// The node.
        node: String,
        /// The label that it must have for this.
        before: Option<String>,
        /// UID of the domain.
        domain: Option<String>,
    },
    /// Creates a template, a `DaemonSet` or a clique.
    Create(Value),
    /// Issues a certificate, and creates its Secret.
    IssueCertificate(CertificateRequest),
    /// Replaces a `DaemonSet`.
    ReplaceDaemonSet {
        /// The version to which it applies.
        resource_version: String,
        /// The object.
        object: Value,
    },
    /// Removes the finalizer that NVIDIA's controller left on an object.
    DropFinalizer(OwnedObject),
    /// Deletes an object.
    Delete(OwnedObject),
    /// Sets the labels of a clique that was made without them, and the annotation that counts changes of its indices.
    LabelClique {
        /// The clique.
        object: OwnedObject,
        /// All its labels that matter.
        labels: [(&'static str, String); 2],
        /// Whether it counts the changes of its indices already.
        counts: bool,
    },
    /// Gives indices to entries of a clique, or takes them.
    AssignIndices {
        /// The clique.
        object: OwnedObject,
        /// The count of changes of its indices for which this was decided.
        seen: u64,
        /// The entries that change.
        changes: Vec<IndexChange>,
    },
    /// Removes entries of a clique, unless a pod with the address of one exists: the watch of pods may lag behind that of
    /// cliques, and the index of a running daemon must not become free.
    RemoveEntries {
        /// The clique.
        object: OwnedObject,
        /// Position, node and address of each, from the last position to the first.
        entries: Vec<(usize, String, String)>,
    },
}

/// Another index for an entry of a clique.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexChange {
    /// Where the entry is.
    pub position: usize,
    /// Its node.
    pub node: String,
    /// The index; `None`: none any more.
    pub index: Option<i64>,
}

/// The object of an event.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Regarding {
    /// The domain.
    Domain,
    /// A claim.
    Claim {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
}

/// A warning that holds now. It is reported once while it holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Warning {
    /// The object.
    pub regarding: Regarding,
    /// The reason.
    pub reason: Reason,
    /// What happened, and what to do.
    pub note: String,
}

/// What is to be written for one domain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The writes that can be done now.
    pub writes: Vec<Write>,
    /// The domain's status, if it changes.
    pub status: Option<Write>,
    /// Warnings that hold now.
    pub warnings: Vec<Warning>,
}

impl Plan {
    /// The channels that the domain has when the plan is carried out.
    pub fn channels<'a>(&'a self, view: &'a View) -> &'a [ComputeDomainChannelNumber] {
        let old = view.domain.as_ref().and_then(|domain| domain.status.as_ref());
        let status = match &self.status {
            Some(Write::SetStatus { status, .. }) => Some(status),
            _ => old,
        };
        status.map(|status| status.channels.as_slice()).unwrap_or_default()
    }
}

/// Decides what is to be written for one domain.
pub fn plan(view: &View, config: &Config) -> Plan {
    if view.uid == SHARED_IMEX_DOMAIN && config.services() == ImexServices::PerClique {
        return shared::plan(view, config);
    }
    let Some(domain) = &view.domain else {
        let mut writes = labels::plan(view);
        writes.extend(teardown::orphans(view, config));
        return Plan { writes, ..Plan::default() };
    };
    if !domain.is_deleting && !domain.has_finalizer() {
        // Nothing is made for a domain that could disappear without a trace.
        return Plan { writes: vec![teardown::add_finalizer(domain)], ..Plan::default() };
    }
    let (members, services) = (view.members(), config.services());
    let is_shared = services == ImexServices::PerClique;
    let daemons = if is_shared { view.shared_daemons() } else { view.daemons() };
    let channels =
        if is_shared { channels::plan(view, domain, &members) } else { ChannelPlan::default() };
    let mut writes: Vec<Write> =
        view.claims.iter().filter_map(|claim| annotate(view, claim)).collect();
    writes.extend(match services {
        ImexServices::PerDomain => labels::plan(view),
        ImexServices::PerClique | ImexServices::OfHost => labels::removals(view),
    });
    let mut full = Vec::new();
    let is_taken = !domain.is_deleting && objects::is_template_taken(view, domain);
    if domain.is_deleting && members.is_empty() {
        writes.extend(teardown::domain(view, domain));
    } else {
        if domain.is_deleting {
            writes.extend(teardown::workload_templates(view, config));
        } else {
            writes.extend(objects::workload_template(view, domain));
        }
        match services {
            ImexServices::PerDomain => {
                writes.extend(objects::daemons(view, DaemonsOf::Domain(domain), config));
                let cliques = cliques::plan(view, &members, &daemons, config);
                writes.extend(cliques.writes);
                full = cliques.full;
            }
            ImexServices::PerClique | ImexServices::OfHost => {
                writes.extend(teardown::daemons(view, config));
            }
        }
        if is_shared {
            full = shared::full(view, &members, config);
        }
    }
    let facts = status::Facts {
        view,
        domain,
        services,
        members: &members,
        daemons: &daemons,
        is_taken,
        full: &full,
        channels: &channels,
        certificate: certificate::problem(view, domain, is_shared, config),
    };
    // A status before the gangs are known could let pods start too early. Reading pods takes moments.
    let status = if view.is_reading { None } else { facts.changed_status() };
    Plan { writes, status, warnings: facts.warnings() }
}

/// A claim that was written by hand names its domain in the config only, by UID. An agent finds a domain by name.
fn annotate(view: &View, claim: &ChannelClaim) -> Option<Write> {
    let domain = view.domain.as_ref()?;
    let is_needed = claim.namespace == domain.namespace && !claim.is_annotated;
    is_needed.then(|| Write::AnnotateClaim {
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
        uid: claim.uid.clone(),
        domain: domain.full_name(),
    })
}
