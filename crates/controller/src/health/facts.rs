//! What matters of policies, work on nodes, nodes and the health that their agents report.

mod health;
mod maintenance;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

pub use health::{DeviceFacts, HealthFacts, OrderFacts, SeenHealth, health};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::DynamicObject;
pub use maintenance::{MaintenanceFacts, is_meant, maintenance};
use octavo_api::health_policy::{HealthPolicySpec, HealthPolicyStatus, TemplateSpec};
use octavo_api::names::{LABEL_CLIQUE, LABEL_GPU_PRESENT, TAINT_MAINTENANCE};
use octavo_health::policy::Policy;
use serde::Deserialize;
use serde_json::Value;

use crate::store::{SeenNode, is_older};

/// Label of nodes with their rack, as in the scheduler's topology.
const LABEL_RACK: &str = "topology.octavo.dev/rack";
/// Taints of nodes whose kubelet does not report, or that report that they are not ready.
pub const TAINTS_NOT_READY: [&str; 2] =
    ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];
/// Taint with which an administrator says that a node is shut down.
const TAINT_OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Labels of nodes with their topology domains, widest first, as the scheduler has them by default. Values of a level are those of one
/// domain of the level before.
const TOPOLOGY: [&str; 3] =
    ["topology.kubernetes.io/zone", "topology.octavo.dev/block", LABEL_RACK];

/// Kinds that are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `HealthPolicy`.
    Policy,
    /// `Node`.
    Node,
    /// `NodeHealth`.
    Health,
    /// `Maintenance`.
    Maintenance,
}

/// All kinds.
const KINDS: [Kind; 4] = [Kind::Policy, Kind::Node, Kind::Health, Kind::Maintenance];

/// A change of the cluster.
#[derive(Debug)]
pub enum Change {
    /// All objects of a kind follow.
    Begin(Kind),
    /// All objects of a kind were there.
    End(Kind),
    /// An object exists.
    Put(String, Fact),
    /// An object is gone.
    Gone(Kind, String),
    /// The cluster does not serve a kind, or it may not be read.
    Unserved(Kind),
}

/// What matters of an object.
#[derive(Debug)]
pub enum Fact {
    /// Of a policy.
    Policy(Box<PolicyFacts>),
    /// Of a node.
    Node(NodeFacts),
    /// Of the health of a node.
    Health(HealthFacts),
    /// Of work on nodes.
    Maintenance(Box<MaintenanceFacts>),
}

/// Which version of an object it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// UID of the object.
    pub uid: String,
    /// Its `resourceVersion`.
    pub resource: String,
}

/// A policy.
#[derive(Clone, Debug)]
pub struct PolicyFacts {
    /// The version of the object.
    pub version: Version,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Labels of the nodes to which it applies, also of one that is wrong. Without any it applies to none.
    pub selector: BTreeMap<String, String>,
    /// The policy, or the field that is wrong and why.
    pub policy: Result<Policy, String>,
    /// The template by which another program applies remedies.
    pub template: Option<TemplateSpec>,
    /// Its status.
    pub status: HealthPolicyStatus,
}

/// A node.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// Its labels.
    pub labels: Labels,
    /// Its rack, if a label names it.
    pub rack: Option<String>,
    /// Since when it is not ready, in seconds since 1970; 0 if that is not known. `None`: it is ready.
    pub not_ready_since: Option<u64>,
    /// Whether it has the taint of nodes on which work is in progress.
    pub is_in_maintenance: bool,
    /// Whether a label says that it has GPUs.
    pub is_labelled_with_gpus: bool,
    /// Whether its pods are taken for lost.
    pub loss: Option<Loss>,
    /// Topology domains in which it is, the whole cluster among them. Two domains of one hash are taken for equal.
    pub domains: Vec<u64>,
}

/// Why the pods of a node are taken for lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It does not report, or reports that it is not ready.
    Lost,
    /// An administrator says that it is shut down.
    OutOfService,
}

/// Labels as hashes of name and value, since a node has dozens, and policies name a few. Two labels of one hash are taken for equal;
/// it has 64 bits. They are sorted.
#[derive(Clone, Debug, Default)]
pub struct Labels(Box<[u64]>);

/// All that is known.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Policies by name.
    pub policies: BTreeMap<String, PolicyFacts>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, NodeFacts>,
    /// Health by the name of the node.
    pub healths: BTreeMap<String, HealthFacts>,
    /// Work on nodes by name.
    pub maintenances: BTreeMap<String, MaintenanceFacts>,
    /// Kinds of which one list is complete.
    complete: BTreeSet<Kind>,
    /// Kinds that could not be listed of late.
    unserved: BTreeSet<Kind>,
    /// Names of a list that is not complete yet, by kind.
    listed: BTreeMap<Kind, BTreeSet<String>>,
}

impl PolicyFacts {
    /// The template by which another program applies remedies, unless the policy is not valid.
    pub fn usable_template(&self) -> Option<&TemplateSpec> {
        self.template.as_ref().filter(|_| self.policy.is_ok())
    }
}

impl Labels {
    fn of<'a>(labels: impl Iterator<Item = (&'a String, &'a String)>) -> Self {
        let mut hashes: Box<[u64]> = labels.map(|(name, value)| label_hash(name, value)).collect();
        hashes.sort_unstable();
        Self(hashes)
    }

    /// Whether a policy with this selector applies to a node with these labels.
    pub fn are_selected_by(&self, selector: &BTreeMap<String, String>) -> bool {
        let has = |(name, value): (&String, &String)| {
            self.0.binary_search(&label_hash(name, value)).is_ok()
        };
        !selector.is_empty() && selector.iter().all(has)
    }
}

/// Labels of a node of a test.
#[cfg(test)]
pub(super) fn labels(labels: &[(String, String)]) -> Labels {
    Labels::of(labels.iter().map(|(name, value)| (name, value)))
}

fn label_hash(name: &str, value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (name, value).hash(&mut hasher);
    hasher.finish()
}

impl Facts {
    /// Whether every kind was listed once. Before that, what is missing may exist. Health goes on where work on nodes cannot be read.
    pub fn are_complete(&self) -> bool {
        let is_known = |kind: &Kind| self.complete.contains(kind);
        let is_left_out = |kind: &Kind| *kind == Kind::Maintenance && self.unserved.contains(kind);
        KINDS.iter().all(|kind| is_known(kind) || is_left_out(kind))
    }

    /// Whether work on nodes can be read.
    pub fn have_maintenances(&self) -> bool {
        self.complete.contains(&Kind::Maintenance) && !self.unserved.contains(&Kind::Maintenance)
    }

    /// Applies a change. Of two versions of an object the newer one stays.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Begin(kind) => drop(self.listed.insert(kind, BTreeSet::new())),
            Change::End(kind) => {
                let listed = self.listed.remove(&kind).unwrap_or_default();
                match kind {
                    Kind::Policy => self.policies.retain(|name, _| listed.contains(name)),
                    Kind::Node => self.nodes.retain(|name, _| listed.contains(name)),
                    Kind::Health => self.healths.retain(|name, _| listed.contains(name)),
                    Kind::Maintenance => {
                        self.maintenances.retain(|name, _| listed.contains(name));
                    }
                }
                self.unserved.remove(&kind);
                self.complete.insert(kind);
            }
            Change::Unserved(kind) => drop(self.unserved.insert(kind)),
            Change::Put(name, fact) => self.put(name, fact),
            Change::Gone(Kind::Policy, name) => drop(self.policies.remove(&name)),
            Change::Gone(Kind::Node, name) => drop(self.nodes.remove(&name)),
            Change::Gone(Kind::Health, name) => drop(self.healths.remove(&name)),
            Change::Gone(Kind::Maintenance, name) => drop(self.maintenances.remove(&name)),
        }
    }

    /// The policy of a node: the first by name that selects it, valid or not. The others that select it follow.
    pub fn policies_of<'a>(
        &'a self,
        node: &'a NodeFacts,
    ) -> impl Iterator<Item = (&'a str, &'a PolicyFacts)> {
        let applies =
            |(_, policy): &(&String, &PolicyFacts)| node.labels.are_selected_by(&policy.selector);
        self.policies.iter().filter(applies).map(|(name, policy)| (name.as_str(), policy))
    }

    fn put(&mut self, name: String, fact: Fact) {
        let kind = match &fact {
            Fact::Policy(_) => Kind::Policy,
            Fact::Node(_) => Kind::Node,
            Fact::Health(_) => Kind::Health,
            Fact::Maintenance(_) => Kind::Maintenance,
        };
        if let Some(listed) = self.listed.get_mut(&kind) {
            listed.insert(name.clone());
        }
        match fact {
            Fact::Policy(fact) => {
                let old = self.policies.get(&name).map(|old| &old.version);
                if !is_outdated(&fact.version, old) {
                    self.policies.insert(name, *fact);
                }
            }
            Fact::Node(fact) => drop(self.nodes.insert(name, fact)),
            Fact::Health(fact) => {
                let old = self.healths.get(&name).map(|old| &old.version);
                if !is_outdated(&fact.version, old) {
                    self.healths.insert(name, fact);
                }
            }
            Fact::Maintenance(fact) => {
                let old = self.maintenances.get(&name).map(|old| &old.version);
                if !is_outdated(&fact.version, old) {
                    self.maintenances.insert(name, *fact);
                }
            }
        }
    }
}

fn is_outdated(new: &Version, old: Option<&Version>) -> bool {
    old.is_some_and(|old| old.uid == new.uid && is_older(&new.resource, &old.resource))
}

/// A policy. Its spec is read here and not by the watch: one that this version cannot read stops no other.
pub fn policy(object: &DynamicObject) -> Fact {
    let spec = object.data.get("spec").cloned().unwrap_or_default();
    let selector = part(&spec, "nodeSelector").unwrap_or_default();
    let spec = serde_json::from_value::<HealthPolicySpec>(spec);
    let template = spec.as_ref().ok().and_then(|spec| spec.template.clone());
    let policy = match spec {
        Ok(spec) => spec.check().map_err(|error| error.to_string()),
        Err(error) => Err(format!("spec: {error}")),
    };
    Fact::Policy(Box::new(PolicyFacts {
        version: version(&object.metadata),
        generation: object.metadata.generation,
        selector,
        policy,
        template,
        status: part(&object.data, "status").unwrap_or_default(),
    }))
}

/// A node.
pub fn node(object: &SeenNode) -> Fact {
    Fact::Node(NodeFacts::of(object))
}

/// Whether a taint of a node is that of work on it.
pub fn is_of_maintenance(key: &str, effect: &str) -> bool {
    (key, effect) == (TAINT_MAINTENANCE, "NoSchedule")
}

impl NodeFacts {
    /// What matters of an object.
    pub fn of(object: &SeenNode) -> Self {
        let labels = object.metadata.labels.as_ref();
        let label = |name: &str| labels.and_then(|labels| labels.get(name));
        let taints = &object.spec.taints;
        let not_ready = taints.iter().filter(|taint| TAINTS_NOT_READY.contains(&&*taint.key));
        let is_lost = not_ready.clone().any(|taint| taint.effect == "NoExecute");
        // As in Kubernetes' garbage collector of pods, any effect counts, and a node that is ready may run pods.
        let is_out = not_ready.clone().next().is_some()
            && taints.iter().any(|taint| taint.key == TAINT_OUT_OF_SERVICE);
        let since = not_ready.map(|taint| taint.time_added.as_ref().map_or(0, |at| unix(at.0)));
        Self {
            labels: Labels::of(labels.into_iter().flatten()),
            rack: label(LABEL_RACK).cloned(),
            not_ready_since: since.max(),
            is_in_maintenance: taints.iter().any(|it| is_of_maintenance(&it.key, &it.effect)),
            is_labelled_with_gpus: label(LABEL_GPU_PRESENT).is_some_and(|value| value == "true"),
            loss: if is_out { Some(Loss::OutOfService) } else { is_lost.then_some(Loss::Lost) },
            domains: domains(|name| label(name).map(String::as_str)),
        }
    }
}

/// The topology domains of a node, by its labels.
fn domains<'a>(label: impl Fn(&str) -> Option<&'a str>) -> Vec<u64> {
    let mut path = String::new();
    let mut domains = vec![label_hash("", "")];
    for (name, value) in TOPOLOGY.iter().filter_map(|name| Some((name, label(name)?))) {
        path = format!("{path}/{value}");
        domains.push(label_hash(name, &path));
    }
    // An NVLink clique is the same wherever its nodes are.
    domains.extend(label(LABEL_CLIQUE).map(|clique| label_hash(LABEL_CLIQUE, clique)));
    domains
}

fn part<T: for<'a> Deserialize<'a>>(data: &Value, name: &str) -> Option<T> {
    T::deserialize(data.get(name)?).ok()
}

fn version(metadata: &ObjectMeta) -> Version {
    Version {
        uid: metadata.uid.clone().unwrap_or_default(),
        resource: metadata.resource_version.clone().unwrap_or_default(),
    }
}

/// Seconds since 1970 of a time as the API writes it.
pub fn seconds(text: &str) -> Option<u64> {
    text.parse().ok().map(unix)
}

/// Seconds since 1970.
pub fn unix(at: Timestamp) -> u64 {
    u64::try_from(at.as_second()).unwrap_or_default()
}

/// A time as the API writes it.
pub fn date(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}
