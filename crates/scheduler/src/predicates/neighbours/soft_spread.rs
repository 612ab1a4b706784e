//! Scores by topology spread constraints with `ScheduleAnyway`, as kube-scheduler's plugin
//! `PodTopologySpread` gives them. Its default constraints are not applied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::{Node, NodeName, Pod, Spread};

use super::Neighbours;
use super::domains::{selector_of, spread_rule};
use crate::predicates::NodeFilterKey;
use crate::predicates::preferences::MAX_SCORE;

/// The label of a node's own domain. Its pods count whatever the constraint's policies are.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// What a constraint gives each node: counts by domain, or by node for the hostname.
enum Counts {
    ByDomain(BTreeMap<String, i64>),
    ByNode(BTreeMap<NodeName, u32>),
}

impl Neighbours {
    /// Scores of candidate nodes, 0 to 100; `None` for a pod without such constraints.
    pub(in crate::predicates) fn spread_scores(
        &self,
        pod: &Pod,
        node_rules: &NodeFilterKey,
        candidates: &[&Arc<Node>],
    ) -> Option<Vec<i64>> {
        let soft: Vec<&Spread> = pod.spec.spread.iter().filter(|spread| !spread.is_hard).collect();
        if soft.is_empty() {
            return None;
        }
        let is_labelled = |node: &Node| {
            soft.iter().all(|spread| node.meta.labels.contains_key(&spread.topology_key))
        };
        let labelled: Vec<&Arc<Node>> =
            candidates.iter().copied().filter(|node| is_labelled(node)).collect();
        let weighed: Vec<_> = soft
            .iter()
            .map(|spread| {
                let (counts, domains) =
                    self.soft_counts_of(pod, spread, node_rules, &labelled, &is_labelled);
                (*spread, counts, domain_weight(domains))
            })
            .collect();
        #[expect(clippy::cast_possible_truncation, reason = "scores are small")]
        let raw = |node: &&Arc<Node>| {
            // Nodes without a label are not scored.
            is_labelled(node).then(|| {
                let scores = weighed
                    .iter()
                    .map(|(spread, counts, weight)| score(node, spread, counts, *weight));
                scores.sum::<f64>().round() as i64
            })
        };
        let raw: Vec<Option<i64>> = candidates.iter().map(raw).collect();
        Some(inverted(&raw))
    }

    /// The counts of a constraint, and the number of its domains among the candidates.
    fn soft_counts_of(
        &self,
        pod: &Pod,
        spread: &Spread,
        node_rules: &NodeFilterKey,
        labelled: &[&Arc<Node>],
        is_labelled: &impl Fn(&Node) -> bool,
    ) -> (Counts, usize) {
        // As in kube-scheduler, a selector without requirements counts no pod.
        let selector = selector_of(pod, spread).filter(|selector| !selector.is_empty());
        let mut counts = self.soft_counts();
        let none = BTreeMap::new();
        let on_node = match selector {
            Some(selector) => {
                let rule = spread_rule(pod, spread, Some(selector));
                counts.of(rule, &self.namespaces, self.placed())
            }
            None => &none,
        };
        if spread.topology_key == HOSTNAME {
            return (Counts::ByNode(on_node.clone()), labelled.len());
        }
        let value = |node: &Node| node.meta.labels.get(&spread.topology_key).cloned();
        let domains: BTreeSet<String> = labelled.iter().filter_map(|node| value(node)).collect();
        let mut in_domain: BTreeMap<String, i64> =
            domains.into_iter().map(|value| (value, 0)).collect();
        for (name, pods) in on_node {
            let Some(node) = self.nodes.get(name).filter(|node| is_labelled(node)) else {
                continue;
            };
            if node_rules.is_counted(node, spread.honors_affinity, spread.honors_taints)
                && let Some(sum) = value(node).and_then(|value| in_domain.get_mut(&value))
            {
                *sum += i64::from(*pods);
            }
        }
        let domains = in_domain.len();
        (Counts::ByDomain(in_domain), domains)
    }
}

/// The weight of a pod in a topology with so many domains: pods in few large domains count less.
#[expect(clippy::cast_precision_loss, reason = "numbers of domains are small")]
fn domain_weight(domains: usize) -> f64 {
    ((domains + 2) as f64).ln()
}

/// What a constraint adds to a node's score; less is better.
fn score(node: &Node, spread: &Spread, counts: &Counts, weight: f64) -> f64 {
    let pods = match counts {
        Counts::ByDomain(counts) => {
            let value = node.meta.labels.get(&spread.topology_key);
            value.and_then(|value| counts.get(value)).copied().unwrap_or(0)
        }
        Counts::ByNode(counts) => counts.get(&*node.meta.name.name).copied().map_or(0, i64::from),
    };
    #[expect(clippy::cast_precision_loss, reason = "numbers of pods are small")]
    let pods = pods as f64;
    pods * weight + f64::from(spread.max_skew - 1)
}

/// Scores from 0 to 100, of which more is better. Nodes that are not scored get 0.
fn inverted(raw: &[Option<i64>]) -> Vec<i64> {
    let scored = || raw.iter().copied().flatten();
    let most = scored().max().unwrap_or(0).max(0);
    let least = scored().min().unwrap_or(0);
    let invert = |score: &Option<i64>| match score {
        None => 0,
        Some(_) if most == 0 => MAX_SCORE,
        Some(score) => MAX_SCORE * (most + least - score) / most,
    };
    raw.iter().map(invert).collect()
}
