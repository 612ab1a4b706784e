//! Terms of inter-pod affinity and anti-affinity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_kube_io::objects::{AffinityTerm, Meta, Pod};

use crate::predicates::labels::{Labels, Requirement, all_hold, requirements};

/// Namespaces by name.
pub(super) type Namespaces = BTreeMap<Arc<str>, Arc<Meta>>;

/// A term, possibly of several pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Term {
    pub(super) topology_key: String,
    /// Labels of selected pods; `None`: no pod.
    pub(super) selector: Option<Vec<Requirement>>,
    pub(super) namespaces: BTreeSet<String>,
    /// Labels of further namespaces; `None`: none.
    pub(super) namespace_selector: Option<Vec<Requirement>>,
}

impl Term {
    /// Whether it selects a pod, as a term of a pod without a node. As in kube-scheduler 1.36, a
    /// namespace selector that matches no labels selects all namespaces.
    pub(super) fn selects(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        self.selects_in(pod, |selector| {
            let meta = namespaces.get(&*pod.meta.name.namespace);
            all_hold(selector, &Labels::new())
                || meta.is_some_and(|meta| all_hold(selector, &meta.labels))
        })
    }

    /// Whether it selects a pod without a node, as a term of a pod that has one. A namespace that
    /// does not exist has no labels.
    pub(super) fn selects_newcomer(&self, pod: &Pod, namespaces: &Namespaces) -> bool {
        self.selects_in(pod, |selector| match namespaces.get(&*pod.meta.name.namespace) {
            Some(meta) => all_hold(selector, &meta.labels),
            None => all_hold(selector, &Labels::new()),
        })
    }

    fn selects_in(&self, pod: &Pod, is_selected: impl FnOnce(&[Requirement]) -> bool) -> bool {
        let is_in_namespace = self.namespaces.contains(&*pod.meta.name.namespace)
            || self.namespace_selector.as_deref().is_some_and(is_selected);
        let selector = self.selector.as_deref();
        is_in_namespace && selector.is_some_and(|selector| all_hold(selector, &pod.meta.labels))
    }
}

/// Terms of a pod. As in Kubernetes there are none if one is malformed.
pub(super) fn terms(pod: &Pod, terms: &[AffinityTerm]) -> Vec<Arc<Term>> {
    terms.iter().map(|one| term(pod, one)).collect::<Option<_>>().unwrap_or_default()
}

/// Preferred terms of a pod with their weights, which are negative for anti-affinity.
pub(super) fn preferred_terms(pod: &Pod) -> Vec<(Arc<Term>, i64)> {
    let preferred = pod.spec.preferred_affinity.iter();
    let (near, apart): (Vec<_>, Vec<_>) = preferred.partition(|(weight, _)| *weight > 0);
    let read = |terms: Vec<&(i32, AffinityTerm)>| -> Vec<_> {
        let read = terms.iter().map(|(weight, one)| Some((term(pod, one)?, i64::from(*weight))));
        read.collect::<Option<_>>().unwrap_or_default()
    };
    let mut all = read(near);
    all.extend(read(apart));
    all
}

/// A term of a pod; `None` if it is malformed for Kubernetes.
fn term(pod: &Pod, term: &AffinityTerm) -> Option<Arc<Term>> {
    let mut namespaces: BTreeSet<String> = term.namespaces.iter().cloned().collect();
    if namespaces.is_empty() && term.namespace_selector.is_none() {
        namespaces.insert(pod.meta.name.namespace.to_string());
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
}
