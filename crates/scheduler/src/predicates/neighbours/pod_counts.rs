//! Counts of the pods that a rule selects, by node.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use octavo_kube_io::objects::{NodeName, Pod};

use super::term::{Namespaces, Term};

/// Rules whose counts are kept.
const MAX_RULES: usize = 1024;

/// Pods that a rule selects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct PodRule {
    /// All of them must select the pod.
    pub(super) terms: Vec<Arc<Term>>,
    /// Whether pods that are being deleted count.
    pub(super) counts_terminating: bool,
}

/// Selected pods by node, for the rules that were asked for. Later pods are counted as they come.
#[derive(Debug, Default)]
pub(super) struct PodCounts {
    of_rule: HashMap<PodRule, RuleCounts>,
    /// Uses so far.
    clock: u64,
}

#[derive(Debug)]
struct RuleCounts {
    on_node: BTreeMap<NodeName, u32>,
    last_used: u64,
}

impl PodRule {
    /// Whether it selects a pod, which may be being deleted.
    fn selects_now_or_later(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        self.terms.iter().all(|term| term.selects(pod, namespaces))
    }

    fn selects(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        (self.counts_terminating || pod.meta.deleted.is_none())
            && self.selects_now_or_later(pod, namespaces)
    }
}

impl PodCounts {
    /// The selected pods of a rule by node. `pods` are all pods that have a node, for a rule that is
    /// new here.
    pub(super) fn of<'a>(
        &mut self,
        rule: PodRule,
        namespaces: &Namespaces,
        pods: impl Iterator<Item = (&'a Arc<Pod>, &'a NodeName)>,
    ) -> &BTreeMap<NodeName, u32> {
        self.clock += 1;
        if !self.of_rule.contains_key(&rule) {
            self.drop_oldest();
        }
        let counts = self.of_rule.entry(rule).or_insert_with_key(|rule| {
            let mut on_node = BTreeMap::new();
            for (pod, node) in pods {
                if rule.selects(pod, namespaces) {
                    *on_node.entry(node.clone()).or_default() += 1;
                }
            }
            RuleCounts { on_node, last_used: 0 }
        });
        counts.last_used = self.clock;
        &counts.on_node
    }

    /// Adds or subtracts a pod that got or lost its node.
    pub(super) fn count(
        &mut self,
        pod: &Pod,
        node: &NodeName,
        namespaces: &Namespaces,
        is_more: bool,
    ) {
        let selecting = self.of_rule.iter_mut().filter(|(rule, _)| rule.selects(pod, namespaces));
        for (_, RuleCounts { on_node, .. }) in selecting {
            let count = on_node.entry(node.clone()).or_default();
            *count = if is_more { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                on_node.remove(node);
            }
        }
    }

    /// Whether any of the rules selects a pod.
    pub(super) fn selects(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        self.of_rule.keys().any(|rule| rule.selects_now_or_later(pod, namespaces))
    }

    /// Forgets all counts, after a change of what rules select.
    pub(super) fn clear(&mut self) {
        self.of_rule.clear();
    }

    fn drop_oldest(&mut self) {
        if self.of_rule.len() < MAX_RULES {
            return;
        }
        let oldest = self.of_rule.iter().min_by_key(|(_, counts)| counts.last_used);
        if let Some(rule) = oldest.map(|(rule, _)| rule.clone()) {
            self.of_rule.remove(&rule);
        }
    }
}
