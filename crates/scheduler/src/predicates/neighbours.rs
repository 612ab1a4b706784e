//! Pods that have a node, as the rules of other pods see them: inter-pod affinity and anti-affinity,
//! topology spread, and claims for one pod at a time. Rules exclude nodes, or prefer some.

mod domains;
mod exclusions;
mod pod_counts;
mod preferred;
mod soft_spread;
mod term;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use octavo_kube_io::objects::{
    Change, Delta, Meta, Node, NodeName, NodeTaint, ObjectName, Pod, PodUid, PodVolume,
    TaintEffect, VolumeSource,
};

use super::Volumes;
use super::usage::{decrement, increment};
use super::volumes::claim_name;
pub use exclusions::Exclusions;
use pod_counts::PodCounts;
use term::{Term, preferred_terms, terms};

/// An index of pods that have a node: their labels, what their required anti-affinity excludes, and
/// which claims they use.
///
/// Pods are identified by UID. An assumed pod is added, and may be added again when the watch
/// delivers it. Pods that have ended must be removed.
#[derive(Debug, Default)]
pub struct Neighbours {
    namespaces: BTreeMap<Arc<str>, Arc<Meta>>,
    nodes: BTreeMap<NodeName, Arc<Node>>,
    /// Nodes with taints of the effect `PreferNoSchedule`.
    soft_tainted: BTreeSet<NodeName>,
    pods: BTreeMap<PodUid, PlacedPod>,
    /// Pods with terms, by node.
    on_node: BTreeMap<NodeName, BTreeSet<PodUid>>,
    /// How many pods have a term of anti-affinity, by the value of its topology key on their node.
    terms: WeightsByDomain,
    /// What pods contribute to the scores of others by a term, by the same.
    preferred: WeightsByDomain,
    /// How many pods use a claim.
    claims: BTreeMap<ObjectName, u32>,
    /// Pods that the rules of other pods select, counted when they are first asked for.
    counts: Mutex<PodCounts>,
    /// The same for rules that only prefer nodes.
    soft_counts: Mutex<PodCounts>,
}

/// Sums of weights by term, and by the value of its topology key on the pods' nodes. Sums of 0 are
/// left out.
type WeightsByDomain = BTreeMap<Arc<Term>, BTreeMap<String, i64>>;

/// The weight of required affinity among the scores (`hardPodAffinityWeight` of kube-scheduler).
const REQUIRED_AFFINITY_WEIGHT: i64 = 1;

#[derive(Clone, Debug)]
struct PlacedPod {
    pod: Arc<Pod>,
    node: NodeName,
    /// Terms of required anti-affinity.
    terms: Vec<Arc<Term>>,
    /// Terms that add to the scores of other pods: preferred ones and those of required affinity.
    preferred: Vec<(Arc<Term>, i64)>,
    claims: Vec<ObjectName>,
}

impl Neighbours {
    /// Applies a change of namespaces or nodes. Returns whether exclusions may have changed.
    pub fn apply(&mut self, change: &Change) -> bool {
        match change {
            Change::Namespace(delta) => {
                let has_changed = self.apply_namespaces(delta);
                if has_changed {
                    self.pod_counts().clear();
                    self.soft_counts().clear();
                }
                return has_changed;
            }
            Change::Node(delta) => {
                for name in delta.gone(self.nodes.keys(), Node::name) {
                    self.drop_node(&name);
                }
                for node in delta.present() {
                    self.set_node(node);
                }
            }
            _ => return false,
        }
        true
    }

    fn apply_namespaces(&mut self, delta: &Delta<Meta>) -> bool {
        let mut has_changed = false;
        for name in delta.gone(self.namespaces.keys(), |one| Arc::clone(&one.name.name)) {
            has_changed |= self.namespaces.remove(&name).is_some();
        }
        for one in delta.present() {
            let old = self.namespaces.insert(Arc::clone(&one.name.name), Arc::clone(one));
            has_changed |= old.is_none_or(|old| old.labels != one.labels);
        }
        has_changed
    }

    /// Adds a node, or updates its labels and taints.
    pub fn set_node(&mut self, node: &Arc<Node>) {
        let name = node.name();
        let old = self.nodes.get(&name);
        if old
            .is_some_and(|old| (&old.meta.labels, &old.taints) == (&node.meta.labels, &node.taints))
        {
            return;
        }
        self.recount(&name, false);
        let is_soft = |taint: &NodeTaint| taint.effect == TaintEffect::PreferNoSchedule;
        if node.taints.iter().any(is_soft) {
            self.soft_tainted.insert(name.clone());
        } else {
            self.soft_tainted.remove(&name);
        }
        self.nodes.insert(name.clone(), Arc::clone(node));
        self.recount(&name, true);
    }

    /// Removes a node. Pods that are left on it exclude no others.
    pub fn drop_node(&mut self, name: &str) {
        self.recount(name, false);
        self.nodes.remove(name);
        self.soft_tainted.remove(name);
    }

    /// Records that a pod has a node, assumed or bound. Replaces what was known of it.
    pub fn add(&mut self, pod: &Arc<Pod>, node: &str) {
        self.remove(&pod.meta.uid);
        let claims = pod.spec.volumes.iter().filter_map(|volume| shared_claim(pod, volume));
        let affinity = terms(pod, &pod.spec.affinity).into_iter();
        let affinity = affinity.map(|term| (term, REQUIRED_AFFINITY_WEIGHT));
        let placed = PlacedPod {
            pod: Arc::clone(pod),
            node: NodeName::from(node),
            terms: terms(pod, &pod.spec.anti_affinity),
            preferred: affinity.chain(preferred_terms(pod)).collect(),
            claims: claims.collect(),
        };
        self.count_pod(&placed, true);
        for claim in &placed.claims {
            increment(&mut self.claims, claim);
        }
        if !placed.terms.is_empty() || !placed.preferred.is_empty() {
            let pods_on_node = self.on_node.entry(placed.node.clone()).or_default();
            pods_on_node.insert(pod.uid());
        }
        self.pods.insert(pod.uid(), placed);
    }

    /// Removes a pod by UID. An unknown one is no error.
    pub fn remove(&mut self, uid: &str) {
        let Some(placed) = self.pods.remove(uid) else { return };
        self.count_pod(&placed, false);
        for claim in &placed.claims {
            decrement(&mut self.claims, claim);
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
        let mut claims = pod.spec.volumes.iter().filter_map(|volume| shared_claim(pod, volume));
        let claim =
            claims.find(|claim| self.claims.contains_key(claim) && volumes.is_for_one_pod(claim));
        let mut domains: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (term, values) in &self.terms {
            if term.selects_newcomer(pod, &self.namespaces) {
                let kept = domains.entry(term.topology_key.clone()).or_default();
                kept.extend(values.keys().cloned());
            }
        }
        Exclusions { claim, domains, ..self.own_exclusions(pod, volumes) }
    }

    /// Nodes with taints of the effect `PreferNoSchedule`.
    pub(super) fn soft_tainted(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.soft_tainted.iter().filter_map(|name| self.nodes.get(name))
    }

    fn pod_counts(&self) -> std::sync::MutexGuard<'_, PodCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn soft_counts(&self) -> std::sync::MutexGuard<'_, PodCounts> {
        self.soft_counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds or subtracts a pod.
    fn count_pod(&mut self, placed: &PlacedPod, is_more: bool) {
        for counts in [&mut self.counts, &mut self.soft_counts] {
            let counts = counts.get_mut().unwrap_or_else(PoisonError::into_inner);
            counts.count(&placed.pod, &placed.node, &self.namespaces, is_more);
        }
        self.count_terms(placed, is_more);
    }

    /// Adds or subtracts the terms of all pods of a node.
    fn recount(&mut self, node: &str, is_more: bool) {
        let uids = self.on_node.get(node).into_iter().flatten();
        let placed: Vec<_> = uids.filter_map(|uid| self.pods.get(uid)).cloned().collect();
        for placed in &placed {
            self.count_terms(placed, is_more);
        }
    }

    fn count_terms(&mut self, placed: &PlacedPod, is_more: bool) {
        let Some(node) = self.nodes.get(&placed.node) else { return };
        let sign = if is_more { 1 } else { -1 };
        for term in &placed.terms {
            add(&mut self.terms, node, term, sign);
        }
        for (term, weight) in &placed.preferred {
            add(&mut self.preferred, node, term, sign * weight);
        }
    }
}

/// The claim of a pod's volume, unless it is made for the pod.
fn shared_claim(pod: &Pod, volume: &PodVolume) -> Option<ObjectName> {
    claim_name(pod, volume).filter(|_| volume.source != VolumeSource::Ephemeral)
}

/// Adds to the sum of a term in a node's domain.
fn add(sums: &mut WeightsByDomain, node: &Node, term: &Arc<Term>, weight: i64) {
    // A node without the label is in no domain.
    let Some(value) = node.meta.labels.get(&term.topology_key) else { return };
    let values = sums.entry(Arc::clone(term)).or_default();
    let sum = values.entry(value.clone()).or_default();
    *sum += weight;
    if *sum == 0 {
        values.remove(value);
        if values.is_empty() {
            sums.remove(term);
        }
    }
}
