//! Finds rows by domain, node and clique, so that a change costs no scan of the cluster.

use std::collections::{BTreeMap, BTreeSet};

use super::{Fact, Key};

/// Keys of rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    /// All rows that name a domain, by its UID.
    by_domain: BTreeMap<String, BTreeSet<Key>>,
    claims_by_node: BTreeMap<String, BTreeSet<Key>>,
    nodes_by_clique: BTreeMap<String, BTreeSet<Key>>,
}

impl Index {
    pub(super) fn add(&mut self, key: &Key, fact: &Fact) {
        if let Some(uid) = uid_in(fact) {
            self.by_domain.entry(uid.clone()).or_default().insert(key.clone());
        }
        if let Some((map, name)) = self.further(fact) {
            map.entry(name.clone()).or_default().insert(key.clone());
        }
    }

    pub(super) fn remove(&mut self, key: &Key, fact: &Fact) {
        if let Some(uid) = uid_in(fact) {
            take(&mut self.by_domain, uid, key);
        }
        if let Some((map, name)) = self.further(fact) {
            take(map, name, key);
        }
    }

    fn further<'a>(
        &mut self,
        fact: &'a Fact,
    ) -> Option<(&mut BTreeMap<String, BTreeSet<Key>>, &'a String)> {
        match fact {
            Fact::Claim(claim) => Some((&mut self.claims_by_node, &claim.node)),
            Fact::Node { clique: Some(clique), .. } => Some((&mut self.nodes_by_clique, clique)),
            _ => None,
        }
    }

    /// UIDs of all domains that something names.
    pub(super) fn uids(&self) -> impl Iterator<Item = &String> {
        self.by_domain.keys()
    }

    pub(super) fn of_domain(&self, uid: &str) -> impl Iterator<Item = &Key> {
        self.by_domain.get(uid).into_iter().flatten()
    }

    pub(super) fn claims_on(&self, node: &str) -> impl Iterator<Item = &Key> {
        self.claims_by_node.get(node).into_iter().flatten()
    }

    pub(super) fn nodes_with_clique(&self) -> impl Iterator<Item = &Key> {
        self.nodes_by_clique.values().flatten()
    }

    pub(super) fn nodes_in(&self, clique: &str) -> impl Iterator<Item = &Key> {
        self.nodes_by_clique.get(clique).into_iter().flatten()
    }
}

fn take(map: &mut BTreeMap<String, BTreeSet<Key>>, name: &str, key: &Key) {
    if let Some(keys) = map.get_mut(name) {
        keys.remove(key);
        if keys.is_empty() {
            map.remove(name);
        }
    }
}

/// The domain that an object names.
pub(super) fn uid_in(fact: &Fact) -> Option<&String> {
    match fact {
        Fact::Domain(domain) => Some(&domain.uid),
        Fact::Claim(claim) => Some(&claim.domain),
        Fact::Node { label, .. } => label.as_ref(),
        Fact::Pod(pod) => Some(&pod.domain),
        Fact::Clique(clique) => clique.object.domain.as_ref(),
        Fact::Template(object) | Fact::DaemonSet(object) => object.domain.as_ref(),
        Fact::Secret(secret) => Some(&secret.domain),
        Fact::Gang(_) => None,
    }
}
