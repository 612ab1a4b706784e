//! Running pods that exclude others: required anti-affinity, and claims for one pod at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::{
    AffinityTerm, Change, Delta, Meta, Node, NodeName, ObjectName, Pod, PodUid, VolumeSource,
};

use super::labels::{Labels, Requirement, requirements};
use super::{Unfit, Volumes};

/// An index of pods that have a node: what their required anti-affinity excludes, and which claims
/// they use.
///
/// Pods are identified by UID. An assumed pod is added, and may be added again when the watch
/// delivers it. Pods that have ended must be removed.
#[derive(Clone, Debug, Default)]
pub struct AntiAffinityIndex {
    namespaces: BTreeMap<Arc<str>, Arc<Meta>>,
    nodes: BTreeMap<NodeName, Arc<Node>>,
    /// Pods with terms or claims.
    pods: BTreeMap<PodUid, PlacedPod>,
    /// Pods with terms, by node.
    on_node: BTreeMap<NodeName, BTreeSet<PodUid>>,
    /// How many pods have a term, by the value of its topology key on their node.
    terms: BTreeMap<Arc<Term>, BTreeMap<String, u32>>,
    /// How many pods use a claim.
    claims: BTreeMap<ObjectName, u32>,
}

#[derive(Clone, Debug)]
struct PlacedPod {
    node: NodeName,
    terms: Vec<Arc<Term>>,
    claims: Vec<ObjectName>,
}

/// An anti-affinity term, possibly of several pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    topology_key: String,
    /// Labels of excluded pods; `None`: no pod.
    selector: Option<Vec<Requirement>>,
    namespaces: BTreeSet<String>,
    /// Labels of further namespaces; `None`: none.
    namespace_selector: Option<Vec<Requirement>>,
}

/// The domains and claims that exclude one pod. Computed once for it, checked on each node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    claim: Option<ObjectName>,
    /// Excluded values by topology key.
    domains: BTreeMap<String, BTreeSet<String>>,
}

impl AntiAffinityIndex {
    /// Applies a change of namespaces or nodes. Returns whether exclusions may have changed.
    pub fn apply(&mut self, change: &Change) -> bool {
        match change {
            Change::Namespace(Delta::Upsert(one)) => {
                let old = self.namespaces.insert(Arc::clone(&one.name.name), Arc::clone(one));
                return old.is_none_or(|old| old.labels != one.labels);
            }
            Change::Namespace(Delta::Delete(one)) => {
                return self.namespaces.remove(&one.name.name).is_some();
            }
            Change::Namespace(Delta::Replace(_, all)) => {
                let all = all.iter().map(|one| (Arc::clone(&one.name.name), Arc::clone(one)));
                let old = std::mem::replace(&mut self.namespaces, all.collect());
                let labels =
                    |(name, meta): (&Arc<str>, &Arc<Meta>)| (Arc::clone(name), meta.labels.clone());
                return !old.iter().map(labels).eq(self.namespaces.iter().map(labels));
            }
            Change::Node(Delta::Upsert(node)) => self.set_node(node),
            Change::Node(Delta::Delete(node)) => self.drop_node(&node.meta.name.name),
            Change::Node(Delta::Replace(_, all)) => {
                let listed: BTreeSet<&str> = all.iter().map(|node| &*node.meta.name.name).collect();
                let gone = self.nodes.keys().filter(|name| !listed.contains::<str>(name)).cloned();
                for name in gone.collect::<Vec<_>>() {
                    self.drop_node(&name);
                }
                for node in all {
                    self.set_node(node);
                }
            }
            _ => return false,
        }
        true
    }

    /// Adds a node, or updates its labels.
    pub fn set_node(&mut self, node: &Arc<Node>) {
        let name = node.name();
        let old = self.nodes.get(&name);
        if old.is_some_and(|old| old.meta.labels == node.meta.labels) {
            return;
        }
        self.recount(&name, false);
        self.nodes.insert(name.clone(), Arc::clone(node));
        self.recount(&name, true);
    }

    /// Removes a node. Pods that are left on it exclude no others.
    pub fn drop_node(&mut self, name: &str) {
        self.recount(name, false);
        self.nodes.remove(name);
    }

    /// Records that a pod has a node, assumed or bound. Replaces what was known of it.
    pub fn add(&mut self, pod: &Pod, node: &str) {
        self.remove(&pod.meta.uid);
        let is_claim = |source: &VolumeSource| match source {
            VolumeSource::Claim(name) => {
                let namespace = Arc::clone(&pod.meta.name.namespace);
                Some(ObjectName { namespace, name: Arc::from(&**name) })
            }
            _ => None,
        };
        let claims = pod.spec.volumes.iter().filter_map(|volume| is_claim(&volume.source));
        let placed = PlacedPod {
            node: NodeName::from(node),
            terms: terms(pod, &pod.spec.anti_affinity),
            claims: claims.collect(),
        };
        if placed.terms.is_empty() && placed.claims.is_empty() {
            return;
        }
        self.count(&placed.node, &placed.terms, true);
        for claim in &placed.claims {
            *self.claims.entry(claim.clone()).or_default() += 1;
        }
        if !placed.terms.is_empty() {
            let pods_on_node = self.on_node.entry(placed.node.clone()).or_default();
            pods_on_node.insert(pod.uid());
        }
        self.pods.insert(pod.uid(), placed);
    }

    /// Removes a pod by UID. An unknown one is no error.
    pub fn remove(&mut self, uid: &str) {
        let Some(placed) = self.pods.remove(uid) else { return };
        self.count(&placed.node, &placed.terms, false);
        for claim in &placed.claims {
            if let Some(count) = self.claims.get_mut(claim) {
                *count -= 1;
                if *count == 0 {
                    self.claims.remove(claim);
                }
            }
        }
        if let Some(pods_on_node) = self.on_node.get_mut(&placed.node) {
            pods_on_node.remove(uid);
            if pods_on_node.is_empty() {
                self.on_node.remove(&placed.node);
            }
        }
    }

    /// What excludes `pod`.
    pub fn exclusions(&self, pod: &Pod, volumes: &Volumes) -> Exclusions {
        let in_use = |source: &VolumeSource| match source {
            VolumeSource::Claim(name) => {
                let namespace = Arc::clone(&pod.meta.name.namespace);
                let claim = ObjectName { namespace, name: Arc::from(&**name) };
                (self.claims.contains_key(&claim) && volumes.is_for_one_pod(&claim))
                    .then_some(claim)
            }
            _ => None,
        };
        let claim = pod.spec.volumes.iter().find_map(|volume| in_use(&volume.source));
        let mut domains: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let namespace = &pod.meta.name.namespace;
        let namespace_labels = self.namespaces.get(namespace).map(|meta| &meta.labels);
        let none = Labels::new();
        for (term, values) in &self.terms {
            if term.is_against(&pod.meta.labels, namespace, namespace_labels.unwrap_or(&none)) {
                let kept = domains.entry(term.topology_key.clone()).or_default();
                kept.extend(values.keys().cloned());
            }
        }
        Exclusions { claim, domains }
    }

    /// Adds or subtracts the terms of all pods of a node.
    fn recount(&mut self, node: &str, is_more: bool) {
        let uids = self.on_node.get(node).into_iter().flatten();
        let placed = uids.filter_map(|uid| self.pods.get(uid));
        let terms: Vec<_> = placed.flat_map(|placed| placed.terms.iter().cloned()).collect();
        self.count(node, &terms, is_more);
    }

    fn count(&mut self, node: &str, terms: &[Arc<Term>], is_more: bool) {
        let Some(node) = self.nodes.get(node) else { return };
        for term in terms {
            // A node without the label is in no domain.
            let Some(value) = node.meta.labels.get(&term.topology_key) else { continue };
            let values = self.terms.entry(Arc::clone(term)).or_default();
            let count = values.entry(value.clone()).or_default();
            *count = if is_more { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                values.remove(value);
                if values.is_empty() {
                    self.terms.remove(term);
                }
            }
        }
    }
}

impl Exclusions {
    /// Whether nothing excludes the pod anywhere.
    pub fn is_empty(&self) -> bool {
        self.claim.is_none() && self.domains.is_empty()
    }

    /// Whether the pod may run on a node, or the first reason against it.
    pub fn check(&self, node: &Node) -> Result<(), Unfit> {
        self.reasons(node).next().map_or(Ok(()), Err)
    }

    /// All reasons against a node.
    pub fn reasons<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = Unfit> + 'a {
        let in_use = self.claim.iter().map(|claim| Unfit::ClaimInUse { claim: claim.clone() });
        let kept = self.domains.iter().filter_map(|(topology_key, values)| {
            let value =
                node.meta.labels.get(topology_key).filter(|value| values.contains(*value))?;
            let (topology_key, value) = (topology_key.clone(), value.clone());
            Some(Unfit::AntiAffinity { topology_key, value })
        });
        in_use.chain(kept)
    }
}

impl Term {
    fn is_against(&self, labels: &Labels, namespace: &str, of_namespace: &Labels) -> bool {
        let holds = |selector: &Option<Vec<Requirement>>, labels: &Labels| {
            selector
                .as_ref()
                .is_some_and(|all| all.iter().all(|requirement| requirement.holds(labels)))
        };
        (self.namespaces.contains(namespace) || holds(&self.namespace_selector, of_namespace))
            && holds(&self.selector, labels)
    }
}

/// Terms of a pod. As in Kubernetes there are none if one is malformed.
fn terms(pod: &Pod, terms: &[AffinityTerm]) -> Vec<Arc<Term>> {
    let pod_namespace = &pod.meta.name.namespace;
    let sound = |term: &AffinityTerm| {
        let mut namespaces: BTreeSet<String> = term.namespaces.iter().cloned().collect();
        if namespaces.is_empty() && term.namespace_selector.is_none() {
            namespaces.insert(pod_namespace.to_string());
        }
        Some(Arc::new(Term {
            topology_key: term.topology_key.clone(),
            selector: term
                .selector
                .as_ref()
                .map_or(Some(None), |selector| requirements(selector).map(Some))?,
            namespaces,
            namespace_selector: match &term.namespace_selector {
                Some(selector) => Some(requirements(selector)?),
                None => None,
            },
        }))
    };
    terms.iter().map(sound).collect::<Option<_>>().unwrap_or_default()
}
