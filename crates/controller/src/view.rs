//! What was observed of one domain: the input of [`plan`](crate::plan::plan).

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::compute_domain::{
    ComputeDomainAllocationMode, ComputeDomainDaemon, ComputeDomainStatus,
};
use octavo_api::names::{LABEL_COMPUTE_DOMAIN, LABEL_COMPUTE_DOMAIN_CLIQUE};

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
}

/// A node, as one domain sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// Its version.
    pub resource_version: String,
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
}

impl DaemonPod {
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
}

impl Domain {
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

    /// Entries and pods by node.
    pub fn daemons(&self) -> Daemons<'_> {
        let mut daemons = Daemons::default();
        for clique in &self.cliques {
            for entry in &clique.daemons {
                let node = entry.node_name.as_str();
                // A node may have moved: its entry is in the clique of its label, or in any.
                if self.clique_label(node) == Some(clique.id.as_str())
                    || !daemons.entries.contains_key(node)
                {
                    daemons.entries.insert(node, (clique, entry));
                }
            }
        }
        for pod in &self.pods {
            let found = daemons.pods.entry(&pod.node).or_insert(pod);
            if found.is_deleting {
                *found = pod;
            }
        }
        daemons
    }
}

/// Entries and pods of a domain's daemons, by node.
#[derive(Clone, Debug, Default)]
pub struct Daemons<'a> {
    entries: BTreeMap<&'a str, (&'a Clique, &'a ComputeDomainDaemon)>,
    pods: BTreeMap<&'a str, &'a DaemonPod>,
}

impl<'a> Daemons<'a> {
    /// The clique in which a node has its entry.
    pub fn clique(&self, node: &str) -> Option<&'a Clique> {
        self.entries.get(node).map(|(clique, _)| *clique)
    }

    /// The entry of a node.
    pub fn entry(&self, node: &str) -> Option<&'a ComputeDomainDaemon> {
        self.entries.get(node).map(|(_, entry)| *entry)
    }

    /// The daemon's pod on a node; one that runs comes before one that ends.
    pub fn pod(&self, node: &str) -> Option<&'a DaemonPod> {
        self.pods.get(node).copied()
    }
}
