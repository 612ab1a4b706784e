//! The domains that a pod's own rules exclude or require: affinity, anti-affinity, and topology
//! spread. As kube-scheduler's filters `InterPodAffinity` and `PodTopologySpread`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::{Node, NodeName, Pod, Spread};

use super::Neighbours;
use super::exclusions::{ExcludedDomains, Exclusions, RequiredDomains};
use super::pod_counts::PodRule;
use super::term::{Term, terms};
use crate::predicates::labels::{Labels, Requirement, all_hold, requirements};
use crate::predicates::{NodeFilterKey, Volumes};

impl Neighbours {
    /// Whether a pod has rules about other pods.
    pub fn has_rules(pod: &Pod) -> bool {
        let spec = &pod.spec;
        !spec.affinity.is_empty()
            || !spec.anti_affinity.is_empty()
            || spec.spread.iter().any(|spread| spread.is_hard)
    }

    /// Whether rules of pods that were decided on lately select a pod.
    pub fn is_counted(&self, pod: &Pod) -> bool {
        self.pod_counts().selects(pod, &self.namespaces)
    }

    /// The labels of a pod that any rule looks at: its own rules, or those of pods that have a node.
    /// Pods that differ in other labels alone are excluded from the same nodes.
    pub fn selected_labels(&self, pod: &Pod) -> Labels {
        let spec = &pod.spec;
        let own = terms(pod, &spec.affinity).into_iter().chain(terms(pod, &spec.anti_affinity));
        let of_terms = own.chain(self.terms.keys().cloned());
        let of_terms = of_terms.flat_map(|term| term.selector.clone().unwrap_or_default());
        let of_spread = spec.spread.iter().filter_map(|spread| selector_of(pod, spread)).flatten();
        let keys: BTreeSet<String> =
            of_terms.chain(of_spread).map(|requirement| requirement.key().to_owned()).collect();
        let labels = pod.meta.labels.iter().filter(|(key, _)| keys.contains(*key));
        labels.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// What a pod's own rules exclude.
    pub(super) fn own_exclusions(&self, pod: &Pod, volumes: &Volumes) -> Exclusions {
        let spec = &pod.spec;
        let mut own = Exclusions::default();
        for term in terms(pod, &spec.anti_affinity) {
            let topology_key = term.topology_key.clone();
            let values = self.domains_with_pods(vec![term], &topology_key);
            if !values.is_empty() {
                own.apart.entry(topology_key).or_default().extend(values);
            }
        }
        own.near = self.required_domains(pod);
        let spreads: Vec<&Spread> = spec.spread.iter().filter(|spread| spread.is_hard).collect();
        if !spreads.is_empty() {
            own.spread = self.full_domains(pod, &spreads, &NodeFilterKey::of(pod, volumes));
        }
        own
    }

    /// The domains of each affinity term. A pod counts only if all terms select it.
    fn required_domains(&self, pod: &Pod) -> Vec<RequiredDomains> {
        let own = terms(pod, &pod.spec.affinity);
        let domains: Vec<(String, BTreeSet<String>)> = own
            .iter()
            .map(|term| {
                let topology_key = term.topology_key.clone();
                let values = self.domains_with_pods(own.clone(), &topology_key);
                (topology_key, values)
            })
            .collect();
        // The first pod of a series that requires its own kind may be anywhere.
        let is_first = domains.iter().all(|(_, values)| values.is_empty())
            && own.iter().all(|term| term.selects(pod, &self.namespaces));
        let required = domains.into_iter().map(|(topology_key, values)| RequiredDomains {
            topology_key,
            values: (!is_first).then_some(values),
        });
        required.collect()
    }

    /// The domains with pods that all terms select.
    fn domains_with_pods(&self, terms: Vec<Arc<Term>>, topology_key: &str) -> BTreeSet<String> {
        let rule = PodRule { terms, counts_terminating: true };
        let mut counts = self.pod_counts();
        let on_node = counts.of(rule, &self.namespaces, self.placed());
        let values = on_node.keys().filter_map(|node| self.label_of(node, topology_key));
        values.cloned().collect()
    }

    /// The domains that are full by each spread constraint.
    fn full_domains(
        &self,
        pod: &Pod,
        spreads: &[&Spread],
        node_rules: &NodeFilterKey,
    ) -> Vec<ExcludedDomains> {
        let is_labelled = |labels: &Labels| {
            spreads.iter().all(|spread| labels.contains_key(&spread.topology_key))
        };
        let labelled: Vec<&Arc<Node>> =
            self.nodes.values().filter(|node| is_labelled(&node.meta.labels)).collect();
        let full = spreads.iter().map(|spread| {
            let values = self.full_domains_of(pod, spread, &labelled, node_rules);
            ExcludedDomains { topology_key: spread.topology_key.clone(), values }
        });
        full.collect()
    }

    fn full_domains_of(
        &self,
        pod: &Pod,
        spread: &Spread,
        labelled: &[&Arc<Node>],
        node_rules: &NodeFilterKey,
    ) -> BTreeSet<String> {
        let selector = selector_of(pod, spread);
        let selects_itself = selector.as_ref().is_some_and(|all| all_hold(all, &pod.meta.labels));
        // As in kube-scheduler, a selector without requirements counts no pod.
        let counts_none = selector.as_ref().is_none_or(Vec::is_empty);
        let rule = spread_rule(pod, spread, selector);
        let mut counts = self.pod_counts();
        let none = BTreeMap::new();
        let on_node =
            if counts_none { &none } else { counts.of(rule, &self.namespaces, self.placed()) };
        let mut in_domain: BTreeMap<&String, i64> = BTreeMap::new();
        let is_counted = |node: &&&Arc<Node>| {
            node_rules.is_counted(node, spread.honors_affinity, spread.honors_taints)
        };
        for node in labelled.iter().filter(is_counted) {
            let Some(value) = node.meta.labels.get(&spread.topology_key) else { continue };
            let pods = on_node.get(&*node.meta.name.name).copied().unwrap_or(0);
            *in_domain.entry(value).or_default() += i64::from(pods);
        }
        let has_enough = in_domain.len() >= usize::try_from(spread.min_domains).unwrap_or(0);
        let fewest = in_domain.values().min().copied().filter(|_| has_enough).unwrap_or(0);
        let most = i64::from(spread.max_skew) + fewest - i64::from(selects_itself);
        let full = in_domain.into_iter().filter(|(_, pods)| *pods > most);
        full.map(|(value, _)| value.clone()).collect()
    }

    pub(super) fn placed(&self) -> impl Iterator<Item = (&Arc<Pod>, &NodeName)> {
        self.pods.values().map(|placed| (&placed.pod, &placed.node))
    }

    pub(super) fn label_of(&self, node: &str, label: &str) -> Option<&String> {
        self.nodes.get(node)?.meta.labels.get(label)
    }
}

/// The pods that a spread constraint counts.
pub(super) fn spread_rule(
    pod: &Pod,
    spread: &Spread,
    selector: Option<Vec<Requirement>>,
) -> PodRule {
    let term = Term {
        topology_key: spread.topology_key.clone(),
        selector,
        namespaces: [pod.meta.name.namespace.to_string()].into(),
        namespace_selector: None,
    };
    PodRule { terms: vec![Arc::new(term)], counts_terminating: false }
}

/// The requirements of a spread constraint on pods; `None` if it selects none.
pub(super) fn selector_of(pod: &Pod, spread: &Spread) -> Option<Vec<Requirement>> {
    let mut selector = spread.selector.clone()?;
    for key in &spread.match_label_keys {
        if let Some(value) = pod.meta.labels.get(key) {
            selector.labels.insert(key.clone(), value.clone());
        }
    }
    requirements(&selector)
}
