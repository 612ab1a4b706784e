//! What excludes one pod from nodes because of other pods. Computed once, checked on each node.

use std::collections::{BTreeMap, BTreeSet};

use octavo_kube_io::objects::{Node, ObjectName};

use crate::predicates::Unfit;

/// Values of node labels, by label.
pub(super) type Domains = BTreeMap<String, BTreeSet<String>>;

/// The domains and claims that exclude one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exclusions {
    pub(super) claim: Option<ObjectName>,
    /// Domains from which the anti-affinity of other pods excludes it.
    pub(super) domains: Domains,
    /// Domains that its own anti-affinity excludes.
    pub(super) apart: Domains,
    /// Domains that its own affinity requires: one for each term.
    pub(super) near: Vec<RequiredDomains>,
    /// Domains that its topology spread constraints exclude.
    pub(super) spread: Vec<ExcludedDomains>,
}

/// The domains in which a pod may be by one of its affinity terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequiredDomains {
    pub(super) topology_key: String,
    /// `None`: any, because it is the first of the pods that its terms select.
    pub(super) values: Option<BTreeSet<String>>,
}

/// The domains that are full by one spread constraint. Nodes without the label are excluded, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExcludedDomains {
    pub(super) topology_key: String,
    pub(super) values: BTreeSet<String>,
}

impl Exclusions {
    /// Whether nothing excludes the pod anywhere.
    pub fn is_empty(&self) -> bool {
        self.claim.is_none()
            && self.domains.is_empty()
            && self.apart.is_empty()
            && self.near.is_empty()
            && self.spread.is_empty()
    }

    /// The claim for one pod at a time that another pod uses.
    pub fn claim(&self) -> Option<&ObjectName> {
        self.claim.as_ref()
    }

    /// Whether the pod may run on a node, or the first reason against it.
    pub fn check(&self, node: &Node) -> Result<(), Unfit> {
        self.reasons(node).next().map_or(Ok(()), Err)
    }

    /// All reasons against a node. A filter with several reasons gives the first of them.
    pub fn reasons<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = Unfit> + 'a {
        let in_use = self.claim.as_ref().map(|_| Unfit::ClaimInUse);
        let spread = self.spread.iter().find_map(|spread| spread.reason(node));
        in_use.into_iter().chain(spread).chain(self.affinity_reason(node))
    }

    /// The reason of the filter `InterPodAffinity`.
    fn affinity_reason(&self, node: &Node) -> Option<Unfit> {
        let labels = &node.meta.labels;
        let is_near = |domains: &RequiredDomains| {
            let value = labels.get(&domains.topology_key);
            value.is_some_and(|value| {
                domains.values.as_ref().is_none_or(|values| values.contains(value))
            })
        };
        if !self.near.iter().all(is_near) {
            return Some(Unfit::NoPodNear);
        }
        let is_in = |(topology_key, values): (&String, &BTreeSet<String>)| {
            labels.get(topology_key).is_some_and(|value| values.contains(value))
        };
        if self.apart.iter().any(is_in) {
            return Some(Unfit::OwnAntiAffinity);
        }
        self.domains.iter().any(is_in).then_some(Unfit::AntiAffinity)
    }
}

impl ExcludedDomains {
    fn reason(&self, node: &Node) -> Option<Unfit> {
        match node.meta.labels.get(&self.topology_key) {
            None => Some(Unfit::SpreadLabel),
            Some(value) => self.values.contains(value).then_some(Unfit::Spread),
        }
    }
}
