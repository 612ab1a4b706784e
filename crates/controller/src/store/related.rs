//! Which domains a change concerns.

use std::collections::BTreeSet;

use octavo_api::imex::ImexServices;
use octavo_api::names::SHARED_IMEX_DOMAIN;

use super::index::uid_in;
use super::{Fact, Key, Kind, Row, Store};
use crate::view::{ChannelClaim, Domain};

impl Store {
    /// UIDs of all domains that something names.
    pub fn all_uids(&self) -> BTreeSet<String> {
        let shared = self.is_shared().then(|| SHARED_IMEX_DOMAIN.to_owned());
        self.index.uids().cloned().chain(shared).collect()
    }

    /// Whether domains share the IMEX domains of cliques.
    pub(super) fn is_shared(&self) -> bool {
        self.services == ImexServices::PerClique
    }

    /// Domains in the cliques in which a domain's channel changes: they may wait for it.
    pub(super) fn sharing_channels(&self, old: &Domain, new: &Fact) -> BTreeSet<String> {
        let Fact::Domain(new) = new else { return BTreeSet::new() };
        let channels = |domain: &Domain| {
            let status = domain.status.as_ref();
            status.map(|status| status.channels.clone()).unwrap_or_default()
        };
        let (old, new) = (channels(old), channels(new));
        let changed = old.iter().filter(|channel| !new.contains(channel));
        let claims = changed.flat_map(|channel| self.claims_in(&channel.clique_id));
        claims.map(|claim| claim.domain.clone()).collect()
    }

    /// UIDs of the domains that an object concerns, as it is stored.
    pub(super) fn concerned_by(&self, key: &Key) -> BTreeSet<String> {
        let Some(row) = self.rows.get(key) else { return BTreeSet::new() };
        let mut uids: BTreeSet<String> = uid_in(&row.fact).cloned().into_iter().collect();
        match &row.fact {
            Fact::Claim(claim) => self.add_domains_on(&claim.node, &mut uids),
            Fact::Node { .. } => {
                self.add_domains_on(&key.name, &mut uids);
                if self.is_shared() {
                    uids.insert(SHARED_IMEX_DOMAIN.to_owned());
                }
            }
            Fact::Clique(clique) if clique.object.is_of(SHARED_IMEX_DOMAIN) => {
                uids.extend(self.claims_in(&clique.id).map(|claim| claim.domain.clone()));
            }
            Fact::Pod(pod) if pod.domain == SHARED_IMEX_DOMAIN => {
                uids.extend(self.claims_on(&pod.node).map(|claim| claim.domain.clone()));
            }
            // A domain may wait for the name.
            Fact::Template(template) => uids.extend(
                self.domains()
                    .filter(|d| d.namespace == template.namespace && d.template == template.name)
                    .map(|domain| domain.uid.clone()),
            ),
            Fact::Gang(_) => {
                let claims = self.pods.claims_in(key).filter_map(|key| self.claim(key));
                uids.extend(claims.map(|claim| claim.domain.clone()));
            }
            Fact::Secret(secret) if secret.domain == SHARED_IMEX_DOMAIN => {
                uids.extend(self.domains().map(|domain| domain.uid.clone()));
            }
            Fact::Domain(_)
            | Fact::Pod(_)
            | Fact::Clique(_)
            | Fact::DaemonSet(_)
            | Fact::Secret(_) => {}
        }
        uids
    }

    /// Domains with claims on the nodes, or in the cliques, of a domain's claims: its appearance and its end concern them.
    pub(super) fn related(&self, uid: &str) -> BTreeSet<String> {
        let mut uids = BTreeSet::new();
        let mut cliques = BTreeSet::new();
        for claim in self.index.of_domain(uid).filter_map(|key| self.claim(key)) {
            match self.clique_of(&claim.node) {
                // Each clique once.
                Some(clique) if !cliques.insert(clique) => {
                    self.add_label_of(&claim.node, &mut uids);
                }
                _ => self.add_domains_on(&claim.node, &mut uids),
            }
        }
        uids
    }

    /// Domains with claims on a node or in its clique, and that of its label.
    fn add_domains_on(&self, node: &str, uids: &mut BTreeSet<String>) {
        self.add_label_of(node, uids);
        uids.extend(self.claims_on(node).map(|claim| claim.domain.clone()));
        if let Some(clique) = self.clique_of(node) {
            uids.extend(self.claims_in(clique).map(|claim| claim.domain.clone()));
        }
    }

    fn add_label_of(&self, node: &str, uids: &mut BTreeSet<String>) {
        if let Some(Fact::Node { label: Some(label), .. }) = self.node(node).map(|row| &row.fact) {
            uids.insert(label.clone());
        }
    }

    pub(super) fn node(&self, name: &str) -> Option<&Row> {
        self.rows.get(&Key { kind: Kind::Node, namespace: String::new(), name: name.to_owned() })
    }

    pub(super) fn clique_of(&self, node: &str) -> Option<&str> {
        match &self.node(node)?.fact {
            Fact::Node { clique, .. } => clique.as_deref(),
            _ => None,
        }
    }

    pub(super) fn claim(&self, key: &Key) -> Option<&ChannelClaim> {
        match &self.rows.get(key)?.fact {
            Fact::Claim(claim) => Some(claim),
            _ => None,
        }
    }

    pub(super) fn claims_on(&self, node: &str) -> impl Iterator<Item = &ChannelClaim> {
        self.index.claims_on(node).filter_map(|key| self.claim(key))
    }

    pub(super) fn claims_in(&self, clique: &str) -> impl Iterator<Item = &ChannelClaim> {
        self.index.nodes_in(clique).flat_map(|node| self.claims_on(&node.name))
    }

    /// All domains.
    pub fn domains(&self) -> impl Iterator<Item = &Domain> {
        let first = Key { kind: Kind::Domain, namespace: String::new(), name: String::new() };
        let rows = self.rows.range(first..).take_while(|(key, _)| key.kind == Kind::Domain);
        rows.filter_map(|(_, row)| match &row.fact {
            Fact::Domain(domain) => Some(domain),
            _ => None,
        })
    }

    /// The domain of a UID.
    pub(super) fn domain(&self, uid: &str) -> Option<&Domain> {
        let key = self.index.of_domain(uid).find(|key| key.kind == Kind::Domain)?;
        match &self.rows.get(key)?.fact {
            Fact::Domain(domain) => Some(domain),
            _ => None,
        }
    }
}
