//! The view of one domain.

use std::collections::{BTreeMap, BTreeSet};

use super::{Fact, Key, Kind, Store};
use octavo_api::names::SHARED_IMEX_DOMAIN;

use crate::view::{
    ChannelClaim, DaemonPod, Domain, NodeFacts, OwnedObject, Shared, TakenChannel, View,
};

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
                Some(Fact::Pod(pod)) => view.pods.push(self.with_node_state(pod)),
                Some(Fact::Clique(clique)) => view.cliques.push(clique.clone()),
                Some(Fact::Template(object)) => view.templates.push(object.clone()),
                Some(Fact::DaemonSet(object)) => view.daemon_sets.push(object.clone()),
                Some(Fact::Secret(secret)) => view.secret = Some(secret.clone()),
                // Gangs are found by the pods of claims.
                Some(Fact::Gang(_)) | None => {}
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
        if let Some(domain) = &view.domain {
            (view.gangs, view.is_reading) = self.gangs(domain, &view.claims);
        }
        if self.is_shared() {
            if uid == SHARED_IMEX_DOMAIN {
                view.nodes = self.nodes_with_clique();
                view.shared.is_used =
                    view.nodes.keys().any(|node| self.claims_on(node).next().is_some());
            } else {
                view.shared = self.shared(uid, &view);
            }
        }
        view
    }

    /// All nodes of NVLink cliques.
    fn nodes_with_clique(&self) -> BTreeMap<String, NodeFacts> {
        let nodes = self.index.nodes_with_clique().filter_map(|key| {
            let row = self.rows.get(key)?;
            let Fact::Node { clique, label, .. } = &row.fact else { return None };
            let facts =
                NodeFacts { clique: clique.clone(), label: label.clone(), others: BTreeSet::new() };
            Some((key.name.clone(), facts))
        });
        nodes.collect()
    }

    /// What a domain shares with others.
    fn shared(&self, uid: &str, view: &View) -> Shared {
        let status = view.domain.as_ref().and_then(|domain| domain.status.as_ref());
        let of_status = status.into_iter().flat_map(|status| &status.nodes);
        let of_nodes = view.nodes.values().filter_map(|node| node.clique.as_deref());
        let cliques: BTreeSet<&str> =
            of_status.map(|node| node.clique_id.as_str()).chain(of_nodes).collect();
        let mut shared = Shared { decided: self.channels.decided(uid), ..Shared::default() };
        for key in self.index.of_domain(SHARED_IMEX_DOMAIN) {
            match self.rows.get(key).map(|row| &row.fact) {
                Some(Fact::Clique(clique)) if cliques.contains(clique.id.as_str()) => {
                    shared.cliques.push(clique.clone());
                }
                Some(Fact::Pod(pod)) if view.nodes.contains_key(&pod.node) => {
                    shared.pods.push(self.with_node_state(pod));
                }
                Some(Fact::Secret(secret)) => shared.secret = Some(secret.clone()),
                _ => {}
            }
        }
        for clique in cliques.into_iter().filter(|clique| !clique.is_empty()) {
            let others = self.channels.in_clique(clique).into_iter();
            let taken = others.filter(|(other, _)| *other != uid).map(|(other, channel)| {
                let domain = self.domain(other);
                TakenChannel {
                    channel,
                    domain: domain.map_or_else(|| other.to_owned(), Domain::full_name),
                    age: domain.map(Domain::age).unwrap_or_default(),
                    is_used: domain.is_none_or(|domain| domain.uses_channel(clique)),
                }
            });
            shared.taken.insert(clique.to_owned(), taken.collect());
        }
        shared
    }

    /// A pod, which is lost with its node. Its own conditions stay as they were before, also if the node is removed.
    fn with_node_state(&self, pod: &DaemonPod) -> DaemonPod {
        let node = self.node(&pod.node).map(|row| &row.fact);
        let is_on_lost_node = !matches!(node, Some(Fact::Node { is_lost: false, .. }));
        DaemonPod { is_lost: pod.is_lost || is_on_lost_node, ..pod.clone() }
    }

    fn node_facts(&self, uid: &str, name: &str) -> Option<(String, NodeFacts)> {
        let row = self.node(name)?;
        let Fact::Node { clique, label, .. } = &row.fact else { return None };
        let others = self.claims_on(name).filter_map(|claim| self.other(uid, claim));
        let facts = NodeFacts {
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
