//! The view of one domain.

use std::collections::{BTreeMap, BTreeSet};

use super::{Fact, Key, Kind, Row, Store};
use crate::view::{ChannelClaim, Domain, NodeFacts, OwnedObject, View};

impl Store {
    /// All that concerns a domain.
    pub fn view(&self, uid: &str) -> View {
        let domains: BTreeMap<&str, &Domain> =
            self.domains().map(|domain| (domain.uid.as_str(), domain)).collect();
        let domain = domains.get(uid).copied();
        let claims: Vec<ChannelClaim> =
            self.claims().filter(|claim| claim.domain == uid).cloned().collect();
        // The others that can have members: claims of another namespace, or of no domain, do not count.
        let is_of_other = |claim: &&ChannelClaim| {
            let other = domains.get(claim.domain.as_str());
            claim.domain != uid && other.is_some_and(|other| other.namespace == claim.namespace)
        };
        let others: Vec<&ChannelClaim> = self.claims().filter(is_of_other).collect();
        View {
            uid: uid.to_owned(),
            domain: domain.cloned(),
            nodes: self.nodes(uid, &claims, &others),
            pods: self.facts(Kind::Pod, |fact| match fact {
                Fact::Pod(pod) if pod.domain == uid => Some(pod.clone()),
                _ => None,
            }),
            cliques: self.facts(Kind::Clique, |fact| match fact {
                Fact::Clique(clique) if is_clique_of(&clique.object, uid) => Some(clique.clone()),
                _ => None,
            }),
            templates: self.facts(Kind::Template, |fact| match fact {
                Fact::Template(object) if object.is_of(uid) => Some(object.clone()),
                _ => None,
            }),
            template_by_name: domain.and_then(|domain| self.template(domain)),
            daemon_sets: self.facts(Kind::DaemonSet, |fact| match fact {
                Fact::DaemonSet(object) if object.is_of(uid) => Some(object.clone()),
                _ => None,
            }),
            neighbours: self.neighbours(&claims, &others, &domains),
            claims,
        }
    }

    fn nodes(
        &self,
        uid: &str,
        claims: &[ChannelClaim],
        others: &[&ChannelClaim],
    ) -> BTreeMap<String, NodeFacts> {
        let with_claim: BTreeSet<&str> = claims.iter().map(|claim| claim.node.as_str()).collect();
        let mut on_node: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for claim in others {
            on_node.entry(&claim.node).or_default().insert(claim.domain.clone());
        }
        let nodes = self.of(Kind::Node).filter_map(|(key, row): (&Key, &Row)| {
            let Fact::Node { clique, label } = &row.fact else { return None };
            let name = key.name.as_str();
            let concerns = label.as_deref() == Some(uid) || with_claim.contains(name);
            let facts = || NodeFacts {
                resource_version: row.resource_version.clone(),
                clique: clique.clone(),
                label: label.clone(),
                others: on_node.get(name).cloned().unwrap_or_default(),
            };
            concerns.then(|| (name.to_owned(), facts()))
        });
        nodes.collect()
    }

    fn neighbours(
        &self,
        claims: &[ChannelClaim],
        others: &[&ChannelClaim],
        domains: &BTreeMap<&str, &Domain>,
    ) -> BTreeMap<String, BTreeSet<String>> {
        let own: BTreeSet<&str> =
            claims.iter().filter_map(|claim| self.clique_of(&claim.node)).collect();
        let mut neighbours: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for claim in others {
            if let Some(clique) = self.clique_of(&claim.node)
                && own.contains(clique)
                && let Some(domain) = domains.get(claim.domain.as_str())
            {
                neighbours.entry(clique.to_owned()).or_default().insert(domain.full_name());
            }
        }
        neighbours
    }

    fn template(&self, domain: &Domain) -> Option<OwnedObject> {
        let (namespace, name) = (domain.namespace.clone(), domain.template.clone());
        match &self.rows.get(&Key { kind: Kind::Template, namespace, name })?.fact {
            Fact::Template(object) => Some(object.clone()),
            _ => None,
        }
    }

    fn facts<T>(&self, kind: Kind, pick: impl Fn(&Fact) -> Option<T>) -> Vec<T> {
        self.of(kind).filter_map(|(_, row)| pick(&row.fact)).collect()
    }
}

/// A clique belongs to the domain in its name; a daemon may have made it without labels.
fn is_clique_of(object: &OwnedObject, uid: &str) -> bool {
    object.name.split_once('.').is_some_and(|(domain, _)| domain == uid)
}
