//! What was observed of one domain: the input of [`plan`](crate::plan::plan).

mod certificate;
mod daemons;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use octavo_api::compute_domain::{
    ComputeDomainAllocationMode, ComputeDomainDaemon, ComputeDomainStatus,
};
use octavo_api::names::{LABEL_COMPUTE_DOMAIN, LABEL_COMPUTE_DOMAIN_CLIQUE};

pub use certificate::CertificateSecret;
pub use daemons::Daemons;

/// A `ComputeDomain`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Domain {
    /// Its UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub resource_version: String,
    /// Its generation.
    pub generation: Option<i64>,
    /// When it was created, as text that sorts by time.
    pub created: String,
    /// Whether it is deleted, and kept by finalizers.
    pub is_deleting: bool,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Name of the template of its pods' claims.
    pub template: String,
    /// Channels of a claim.
    pub allocation_mode: ComputeDomainAllocationMode,
    /// Nodes with which it counts as ready.
    pub num_nodes: i64,
    /// Its status.
    pub status: Option<ComputeDomainStatus>,
}

/// A claim with an allocated channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelClaim {
    /// UID of the claim.
    pub uid: String,
    /// Namespace of the claim.
    pub namespace: String,
    /// Name of the claim.
    pub name: String,
    /// The node: the pool of the channel.
    pub node: String,
    /// UID of the domain in its config.
    pub domain: String,
    /// Whether it has the annotation with the domain's name.
    pub is_annotated: bool,
    /// The pods that use it, or own it.
    pub pods: Vec<ClaimPod>,
}

/// A pod of a claim.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimPod {
    /// Its UID.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A gang of a domain's pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gang {
    /// What announces it, as in `PodGroup team/train`.
    pub name: String,
    /// Its pods with a channel of the domain.
    pub pods: u32,
    /// Pods that it needs at least.
    pub minimum: u32,
}

/// A node, as one domain sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its clique, by its label.
    pub clique: Option<String>,
    /// UID of the domain in its label.
    pub label: Option<String>,
    /// UIDs of the other domains with a member claim there.
    pub others: BTreeSet<String>,
}

/// The pod of a domain's daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonPod {
    /// UID of the domain.
    pub domain: String,
    /// Its node.
    pub node: String,
    /// Its address; empty before it has one.
    pub ip: String,
    /// Whether it is ready.
    pub is_ready: bool,
    /// Whether it is known not to run: its container has ended, or its node does not report.
    pub is_lost: bool,
    /// Whether it is deleted and still runs.
    pub is_deleting: bool,
    /// The Secret with its certificate; `None`: it does not encrypt.
    pub secret: Option<String>,
}

impl DaemonPod {
    /// Whether it encrypts.
    pub fn is_encrypted(&self) -> bool {
        self.secret.is_some()
    }

    /// Whether nothing of it is known to run any more: it is deleted, and its node does not report. The kubelet ends it if the
    /// node comes back.
    pub fn is_gone(&self) -> bool {
        self.is_deleting && self.is_lost
    }

    /// Whether it can be what wrote an entry with this address: it runs, or starts.
    pub fn may_serve(&self, address: &str) -> bool {
        !self.is_lost && !self.is_deleting && (self.ip.is_empty() || self.ip == address)
    }
}

/// Kinds of objects that are made for a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnedKind {
    /// `ResourceClaimTemplate`.
    Template,
    /// `DaemonSet`.
    DaemonSet,
    /// `ComputeDomainClique`.
    Clique,
    /// `Secret`.
    Secret,
}

/// Metadata of an object that is made for a domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedObject {
    /// Its kind.
    pub kind: OwnedKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// UID of the domain in its label.
    pub domain: Option<String>,
    /// Hash of the spec from which it was made.
    pub hash: Option<String>,
    /// Its finalizers: those of NVIDIA's controller remain when that is replaced.
    pub finalizers: Vec<String>,
    /// Whether it is deleted, and kept by finalizers.
    pub is_deleting: bool,
}

/// A `ComputeDomainClique`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clique {
    /// Its metadata.
    pub object: OwnedObject,
    /// The clique's id, from its name.
    pub id: String,
    /// The clique's id in its label.
    pub id_label: Option<String>,
    /// The count of changes of its indices, from its annotation.
    pub index_changes: Option<u64>,
    /// The daemons' entries, in the object's order.
    pub daemons: Vec<ComputeDomainDaemon>,
}

/// All that concerns one domain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct View {
    /// UID of the domain.
    pub uid: String,
    /// The domain; `None` if only things with its UID exist.
    pub domain: Option<Domain>,
    /// Claims with its UID, from any namespace.
    pub claims: Vec<ChannelClaim>,
    /// Nodes with its label, or with one of these claims.
    pub nodes: BTreeMap<String, NodeFacts>,
    /// Its daemons' pods.
    pub pods: Vec<DaemonPod>,
    /// Its cliques.
    pub cliques: Vec<Clique>,
    /// Templates with its label.
    pub templates: Vec<OwnedObject>,
    /// The template with the name that its spec has, of this domain or of another owner.
    pub template_by_name: Option<OwnedObject>,
    /// `DaemonSets` with its label.
    pub daemon_sets: Vec<OwnedObject>,
    /// Other domains with members in a clique: by clique id, as `<namespace>/<name>`.
    pub neighbours: BTreeMap<String, BTreeSet<String>>,
    /// The Secret with the name of that of its own daemons.
    pub secret: Option<CertificateSecret>,
    /// The time.
    pub now: Timestamp,
    /// What domains share where they share the IMEX domains of cliques.
    pub shared: Shared,
    /// Gangs of its pods, of which the minimum is known.
    pub gangs: Vec<Gang>,
    /// Whether pods of its members are being read, so that their gangs are not known yet.
    pub is_reading: bool,
}

/// What a domain shares with others where they share the IMEX domains of cliques.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shared {
    /// The cliques of its nodes.
    pub cliques: Vec<Clique>,
    /// The daemons' pods on its nodes.
    pub pods: Vec<DaemonPod>,
    /// The Secret with the name of that of the shared daemons.
    pub secret: Option<CertificateSecret>,
    /// Of the shared daemons themselves: whether a domain has claims on their nodes.
    pub is_used: bool,
    /// Channels of other domains, by clique id.
    pub taken: BTreeMap<String, Vec<TakenChannel>>,
    /// Channels that earlier plans gave this domain, by clique id. Its status may lack them yet.
    pub decided: BTreeMap<String, u32>,
}

/// A channel of another domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakenChannel {
    /// Its number.
    pub channel: u32,
    /// The domain, as `<namespace>/<name>`.
    pub domain: String,
    /// Creation and UID of the domain: their order decides.
    pub age: (String, String),
    /// Whether pods may have started with it.
    pub is_used: bool,
}

impl Domain {
    /// Creation and UID: of two domains the lesser one is older.
    pub fn age(&self) -> (String, String) {
        (self.created.clone(), self.uid.clone())
    }

    /// Whether pods may have started with the domain's channel in a clique: its status has the channel, and a node with an index.
    pub fn uses_channel(&self, clique: &str) -> bool {
        let Some(status) = &self.status else { return false };
        let mut nodes = status.nodes.iter().filter(|node| node.clique_id == clique);
        status.channel(clique).is_some() && nodes.any(|node| node.index.is_some())
    }

    /// `<namespace>/<name>`.
    pub fn full_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether the controller's finalizer keeps it.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|name| name == LABEL_COMPUTE_DOMAIN)
    }
}

impl OwnedObject {
    /// Whether NVIDIA's controller left its finalizer.
    pub fn has_finalizer(&self) -> bool {
        self.finalizers.iter().any(|name| name == LABEL_COMPUTE_DOMAIN)
    }

    /// Whether its label names the domain.
    pub fn is_of(&self, domain: &str) -> bool {
        self.domain.as_deref() == Some(domain)
    }
}

impl Clique {
    /// The labels that it should have.
    pub fn labels(domain: &str, id: &str) -> [(&'static str, String); 2] {
        [(LABEL_COMPUTE_DOMAIN, domain.to_owned()), (LABEL_COMPUTE_DOMAIN_CLIQUE, id.to_owned())]
    }
}

impl View {
    /// Nodes of the domain, by name: those with a claim from its own namespace.
    pub fn members(&self) -> BTreeSet<&str> {
        let Some(domain) = &self.domain else { return BTreeSet::new() };
        let own = self.claims.iter().filter(|claim| claim.namespace == domain.namespace);
        own.map(|claim| claim.node.as_str()).collect()
    }

    /// The clique of a node's label.
    pub fn clique_label(&self, node: &str) -> Option<&str> {
        self.nodes.get(node)?.clique.as_deref()
    }

    /// The clique of a member. One whose label is gone, as while its driver is unloaded, stays in the clique of the status: its
    /// pods may run on.
    pub fn clique_of_member(&self, node: &str) -> Option<&str> {
        self.clique_label(node).or_else(|| {
            let status = self.domain.as_ref()?.status.as_ref()?;
            let last = status.nodes.iter().find(|last| last.name == node)?;
            Some(last.clique_id.as_str()).filter(|clique| !clique.is_empty())
        })
    }

    /// Entries and pods of the domain's own daemons, by node.
    pub fn daemons(&self) -> Daemons<'_> {
        Daemons::of(self, &self.cliques, &self.pods)
    }

    /// Entries and pods of the daemons that domains share, by node.
    pub fn shared_daemons(&self) -> Daemons<'_> {
        Daemons::of(self, &self.shared.cliques, &self.shared.pods)
    }
}
