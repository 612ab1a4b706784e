//! kube-scheduler's scores by what pods and nodes prefer.
//!
//! | plugin of kube-scheduler | here | weight |
//! |---|---|---|
//! | `TaintToleration` | taints with `PreferNoSchedule` that a pod does not tolerate | 3 |
//! | `NodeAffinity` | preferred node affinity | 2 |
//! | `PodTopologySpread` | constraints with `ScheduleAnyway`; no default constraints | 2 |
//! | `DynamicResources` | how early the alternatives are that `firstAvailable` requests get | 2 |
//! | none | the NVLink clique in which the pod's `ComputeDomain` has nodes | 4 |
//! | `InterPodAffinity` | preferred affinity and anti-affinity of the pod, and of pods that have a node; their required affinity | 2 |
//!
//! A plugin scores the candidate nodes from 0 to 100. Scores and weights are those of
//! kube-scheduler 1.36. Its default spread constraints would spread the pods of each `Deployment`
//! over nodes, and so break up whole nodes; they are not applied.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_kube_io::objects::{Node, NodeName, NodeTaint, Pod, TaintEffect};

use super::labels::Term;
use super::{Neighbours, NodeFilterKey, tolerates};

/// The best score of a plugin.
pub(super) const MAX_SCORE: i64 = 100;

/// A plugin and its weight.
const TAINTS: (&str, i64) = ("TaintToleration", 3);
const NODE_AFFINITY: (&str, i64) = ("NodeAffinity", 2);
const SPREAD: (&str, i64) = ("PodTopologySpread", 2);
const POD_AFFINITY: (&str, i64) = ("InterPodAffinity", 2);
const DEVICES: (&str, i64) = ("DynamicResources", 2);
/// Weight above that of each plugin: GPU memory of another clique is out of reach.
const DOMAIN: (&str, i64) = ("ComputeDomain", 4);

/// The scores of candidate nodes for one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scores {
    /// Names of the candidates.
    nodes: Vec<NodeName>,
    /// Weighted scores by plugin, in the order of the candidates. Plugins with nothing to say are
    /// left out.
    by_plugin: BTreeMap<&'static str, Vec<i64>>,
}

/// Whether the pod, a pod with a node, or a node prefers anything that concerns the pod. If not,
/// all nodes score equally.
pub fn has_preferences(pod: &Pod, neighbours: &Neighbours) -> bool {
    let spec = &pod.spec;
    !spec.preferred_nodes.is_empty()
        || spec.spread.iter().any(|spread| !spread.is_hard)
        || neighbours.soft_tainted().any(|node| intolerable(pod, node) > 0)
        || neighbours.has_preferred_affinity(pod)
}

impl Scores {
    /// The scores of candidate nodes.
    pub fn of(
        pod: &Pod,
        neighbours: &Neighbours,
        node_rules: &NodeFilterKey,
        candidates: &[&Arc<Node>],
    ) -> Self {
        let mut by_plugin = BTreeMap::new();
        let mut add = |(plugin, weight): (&'static str, i64), scores: Option<Vec<i64>>| {
            let weighted = scores.map(|all| all.into_iter().map(|one| one * weight).collect());
            by_plugin.extend(weighted.map(|weighted: Vec<i64>| (plugin, weighted)));
        };
        let taints: Vec<_> = candidates.iter().map(|node| intolerable(pod, node)).collect();
        let taints = taints.iter().any(|count| *count > 0).then_some(taints);
        add(TAINTS, taints.map(|counts| scaled(&counts).iter().map(|s| MAX_SCORE - s).collect()));
        add(NODE_AFFINITY, affinity_scores(pod, candidates));
        add(SPREAD, neighbours.spread_scores(pod, node_rules, candidates));
        add(POD_AFFINITY, neighbours.affinity_scores(pod, candidates));
        Self { nodes: candidates.iter().map(|node| node.name()).collect(), by_plugin }
    }

    /// Adds how early the alternatives are that the pod's `firstAvailable` requests get on each
    /// candidate, in their order; greater is better.
    pub fn add_devices(&mut self, raw: &[i64]) {
        let (plugin, weight) = DEVICES;
        let weighted = scaled(raw).into_iter().map(|score| score * weight).collect();
        self.by_plugin.insert(plugin, weighted);
    }

    /// Adds which candidates are in a clique of the pod's `ComputeDomain`, in their order.
    pub fn add_domain(&mut self, is_near: &[bool]) {
        let (plugin, weight) = DOMAIN;
        let scores = is_near.iter().map(|is_near| if *is_near { MAX_SCORE * weight } else { 0 });
        self.by_plugin.insert(plugin, scores.collect());
    }

    /// Weighted scores by plugin and node. Plugins with nothing to say are left out.
    pub fn by_plugin(
        &self,
    ) -> impl Iterator<Item = (&'static str, impl Iterator<Item = (&NodeName, i64)>)> {
        self.by_plugin
            .iter()
            .map(|(plugin, scores)| (*plugin, self.nodes.iter().zip(scores.iter().copied())))
    }

    /// By how many points nodes are below the best candidate; only nodes that are.
    pub fn penalties(&self) -> impl Iterator<Item = (&NodeName, u32)> {
        let total = |index: usize| -> i64 {
            self.by_plugin.values().filter_map(|scores| scores.get(index)).sum()
        };
        let best = (0..self.nodes.len()).map(total).max().unwrap_or(0);
        self.nodes.iter().enumerate().filter_map(move |(index, node)| {
            let missed = u32::try_from(best - total(index)).unwrap_or(u32::MAX);
            (missed > 0).then_some((node, missed))
        })
    }
}

/// Number of a node's taints with `PreferNoSchedule` that a pod does not tolerate.
fn intolerable(pod: &Pod, node: &Node) -> i64 {
    let is_tolerated = |taint: &NodeTaint| {
        pod.spec
            .tolerations
            .iter()
            .any(|one| tolerates(one, &taint.key, &taint.value, TaintEffect::PreferNoSchedule))
    };
    let soft = node.taints.iter().filter(|taint| taint.effect == TaintEffect::PreferNoSchedule);
    soft.filter(|taint| !is_tolerated(taint)).map(|_| 1).sum()
}

/// Scores by preferred node affinity; `None` without it.
fn affinity_scores(pod: &Pod, candidates: &[&Arc<Node>]) -> Option<Vec<i64>> {
    let terms: Vec<(i64, Term)> = pod
        .spec
        .preferred_nodes
        .iter()
        .filter_map(|(weight, term)| Some((i64::from(*weight), Term::new(term)?)))
        .collect();
    let raw = |node: &&Arc<Node>| -> i64 {
        terms.iter().filter(|(_, term)| term.matches(node)).map(|(weight, _)| weight).sum()
    };
    let raw: Vec<i64> = candidates.iter().map(raw).collect();
    (!terms.is_empty()).then(|| scaled(&raw))
}

/// Scores in proportion to the greatest, which gets 100; all 0 if that is 0.
fn scaled(raw: &[i64]) -> Vec<i64> {
    let most = raw.iter().max().copied().unwrap_or(0);
    raw.iter().map(|score| (MAX_SCORE * score).checked_div(most).unwrap_or(0)).collect()
}
