//! Scores by preferred inter-pod affinity, as kube-scheduler's plugin `InterPodAffinity` gives them.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_kube_io::objects::{Node, Pod};

use super::Neighbours;
use super::pod_counts::PodRule;
use super::term::preferred_terms;
use crate::predicates::preferences::MAX_SCORE;

impl Neighbours {
    /// Whether the terms of a pod, or those of pods that have a node, prefer some nodes for it.
    pub(in crate::predicates) fn has_preferred_affinity(&self, pod: &Pod) -> bool {
        !pod.spec.preferred_affinity.is_empty()
            || self.preferred.keys().any(|term| term.selects_newcomer(pod, &self.namespaces))
    }

    /// Scores of candidate nodes, 0 to 100; `None` if no term concerns the pod.
    pub(in crate::predicates) fn affinity_scores(
        &self,
        pod: &Pod,
        candidates: &[&Arc<Node>],
    ) -> Option<Vec<i64>> {
        let mut sums: BTreeMap<&str, BTreeMap<&str, i64>> = BTreeMap::new();
        let own = preferred_terms(pod);
        let mut counts = self.soft_counts();
        for (term, weight) in &own {
            let rule = PodRule { terms: vec![Arc::clone(term)], counts_terminating: true };
            let on_node = counts.of(rule, &self.namespaces, self.placed());
            for (node, pods) in on_node {
                let Some(value) = self.label_of(node, &term.topology_key) else { continue };
                let values = sums.entry(&term.topology_key).or_default();
                *values.entry(value).or_default() += weight * i64::from(*pods);
            }
        }
        drop(counts);
        for (term, values) in &self.preferred {
            if !term.selects_newcomer(pod, &self.namespaces) {
                continue;
            }
            let sums = sums.entry(&term.topology_key).or_default();
            for (value, weight) in values {
                *sums.entry(value).or_default() += weight;
            }
        }
        if sums.is_empty() {
            return None;
        }
        let raw = |node: &&Arc<Node>| {
            let of_key = |(key, values): (&&str, &BTreeMap<&str, i64>)| {
                values.get(&**node.meta.labels.get(*key)?).copied()
            };
            sums.iter().filter_map(of_key).sum::<i64>()
        };
        let raw: Vec<i64> = candidates.iter().map(raw).collect();
        Some(stretched(&raw))
    }
}

/// Scores stretched to 0 to 100; all 0 if they are equal.
fn stretched(raw: &[i64]) -> Vec<i64> {
    let least = raw.iter().min().copied().unwrap_or(0);
    let range = raw.iter().max().copied().unwrap_or(0) - least;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "kube-scheduler computes in this way, with the same rounding"
    )]
    let stretch = |score: &i64| {
        if range == 0 {
            return 0;
        }
        (MAX_SCORE as f64 * ((score - least) as f64 / range as f64)) as i64
    };
    raw.iter().map(stretch).collect()
}
