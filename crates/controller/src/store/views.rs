//! The view of one domain.

use std::collections::{BTreeMap, BTreeSet};

use super::{Fact, Key, Kind, Store};
use crate::view::{ChannelClaim, Domain, NodeFacts, OwnedObject, View};

impl Store {
    /// All that concerns a domain.
    pub fn view(&self, uid: &str) -> View {
        let mut view = View { uid: uid.to_owned(), ..View::default() };
        let mut nodes: BTreeSet<&str> = BTreeSet::new();
        for key in self.index.of_domain(uid) {
            match self.rows.get(key).map(|row| &row.fact) {
                Some(Fact::Domain(domain)) => {
                    view.template_by_name = self.template(domain);
                    view.domain = Some(domain.clone());
                }
                Some(Fact::Claim(claim)) => {
                    nodes.insert(&claim.node);
                    view.claims.push(claim.clone());
                }
                Some(Fact::Node { .. }) => drop(nodes.insert(&key.name)),
                Some(Fact::Pod(pod)) => view.pods.push(pod.clone()),
                Some(Fact::Clique(clique)) => view.cliques.push(clique.clone()),
                Some(Fact::Template(object)) => view.templates.push(object.clone()),
                Some(Fact::DaemonSet(object)) => view.daemon_sets.push(object.clone()),
                None => {}
            }
        }
        view.nodes = nodes.iter().filter_map(|node| self.node_facts(uid, node)).collect();
        let cliques: BTreeSet<&str> =
            view.claims.iter().filter_map(|claim| self.clique_of(&claim.node)).collect();
        let neighbours = cliques.into_iter().map(|clique| {
            let others = self.claims_in(clique).filter_map(|claim| self.other(uid, claim));
            (clique.to_owned(), others.map(Domain::full_name).collect::<BTreeSet<String>>())
        });
        let neighbours: BTreeMap<String, BTreeSet<String>> =
            neighbours.filter(|(_, others)| !others.is_empty()).collect();
        view.neighbours = neighbours;
        view
    }

    fn node_facts(&self, uid: &str, name: &str) -> Option<(String, NodeFacts)> {
        let row = self.node(name)?;
        let Fact::Node { clique, label } = &row.fact else { return None };
        let others = self.claims_on(name).filter_map(|claim| self.other(uid, claim));
        let facts = NodeFacts {
            resource_version: row.resource_version.clone(),
            clique: clique.clone(),
            label: label.clone(),
            others: others.map(|domain| domain.uid.clone()).collect(),
        };
        Some((name.to_owned(), facts))
    }

    /// The other domain of which a claim makes its node a member. Claims of another namespace, or of no domain, do not count.
    fn other(&self, uid: &str, claim: &ChannelClaim) -> Option<&Domain> {
        let domain = self.domain(&claim.domain).filter(|domain| domain.uid != uid)?;
        (domain.namespace == claim.namespace).then_some(domain)
    }

    fn template(&self, domain: &Domain) -> Option<OwnedObject> {
        let (namespace, name) = (domain.namespace.clone(), domain.template.clone());
        match &self.rows.get(&Key { kind: Kind::Template, namespace, name })?.fact {
            Fact::Template(object) => Some(object.clone()),
            _ => None,
        }
    }
}
