//! Which domains a change concerns.

use std::collections::BTreeSet;

use super::{Fact, Key, Kind, Row, Store};
use crate::view::{ChannelClaim, Domain};

impl Store {
    /// UIDs of all domains of which something exists.
    pub fn all_uids(&self) -> BTreeSet<String> {
        self.rows.values().filter_map(|row| uid_in(&row.fact)).cloned().collect()
    }

    /// UIDs of the domains that an object concerns, as it is stored.
    pub(super) fn concerned_by(&self, key: &Key) -> BTreeSet<String> {
        let Some(row) = self.rows.get(key) else { return BTreeSet::new() };
        let mut uids: BTreeSet<String> = uid_in(&row.fact).cloned().into_iter().collect();
        match &row.fact {
            Fact::Domain(domain) => uids.extend(self.related(&domain.uid)),
            Fact::Claim(claim) => uids.extend(self.on_node(&claim.node)),
            Fact::Node { clique, .. } => {
                uids.extend(self.claims().filter(|c| c.node == key.name).map(|c| c.domain.clone()));
                if let Some(clique) = clique {
                    uids.extend(self.in_clique(clique));
                }
            }
            // A domain may wait for the name.
            Fact::Template(template) => uids.extend(
                self.domains()
                    .filter(|d| d.namespace == template.namespace && d.template == template.name)
                    .map(|domain| domain.uid.clone()),
            ),
            Fact::Pod(_) | Fact::Clique(_) | Fact::DaemonSet(_) => {}
        }
        uids
    }

    /// Domains with claims on the nodes, or in the cliques, of a domain's claims.
    pub(super) fn related(&self, uid: &str) -> BTreeSet<String> {
        let nodes: BTreeSet<&str> = self
            .claims()
            .filter(|claim| claim.domain == uid)
            .map(|claim| claim.node.as_str())
            .collect();
        nodes.into_iter().flat_map(|node| self.on_node(node)).collect()
    }

    /// Domains with claims on a node or in its clique, and that of its label.
    fn on_node(&self, node: &str) -> BTreeSet<String> {
        let on_it = self.claims().filter(|claim| claim.node == node);
        let mut uids: BTreeSet<String> = on_it.map(|claim| claim.domain.clone()).collect();
        if let Some(Fact::Node { clique, label }) = self.node_row(node).map(|row| &row.fact) {
            uids.extend(label.clone());
            uids.extend(clique.iter().flat_map(|clique| self.in_clique(clique)));
        }
        uids
    }

    /// Domains with claims on nodes of a clique.
    fn in_clique(&self, clique: &str) -> BTreeSet<String> {
        let is_in = |claim: &&ChannelClaim| self.clique_of(&claim.node) == Some(clique);
        self.claims().filter(is_in).map(|claim| claim.domain.clone()).collect()
    }

    pub(super) fn node_row(&self, name: &str) -> Option<&Row> {
        self.rows.get(&Key { kind: Kind::Node, namespace: String::new(), name: name.to_owned() })
    }

    pub(super) fn clique_of(&self, node: &str) -> Option<&str> {
        match &self.node_row(node)?.fact {
            Fact::Node { clique, .. } => clique.as_deref(),
            _ => None,
        }
    }

    /// All domains.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        self.of(Kind::Domain).filter_map(|(_, row)| match &row.fact {
            Fact::Domain(domain) => Some(domain),
            _ => None,
        })
    }

    pub(super) fn claims(&self) -> impl Iterator<Item = &ChannelClaim> {
        self.of(Kind::Claim).filter_map(|(_, row)| match &row.fact {
            Fact::Claim(claim) => Some(claim),
            _ => None,
        })
    }

    pub(super) fn of(&self, kind: Kind) -> impl Iterator<Item = (&Key, &Row)> {
        let first = Key { kind, namespace: String::new(), name: String::new() };
        self.rows.range(first..).take_while(move |(key, _)| key.kind == kind)
    }
}

/// The domain that an object names.
fn uid_in(fact: &Fact) -> Option<&String> {
    match fact {
        Fact::Domain(domain) => Some(&domain.uid),
        Fact::Claim(claim) => Some(&claim.domain),
        Fact::Node { label, .. } => label.as_ref(),
        Fact::Pod(pod) => Some(&pod.domain),
        Fact::Clique(clique) => clique.object.domain.as_ref(),
        Fact::Template(object) | Fact::DaemonSet(object) => object.domain.as_ref(),
    }
}
