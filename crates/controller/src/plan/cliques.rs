//! Cliques of a domain: creation, labels, stale entries, and indices.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::compute_domain::ComputeDomainDaemon;
use octavo_api::names::{LABEL_COMPUTE_DOMAIN, LABEL_COMPUTE_DOMAIN_CLIQUE};

use super::{IndexChange, Write};
use crate::config::Config;
use crate::view::{Clique, Daemons, View};
use crate::wanted;

/// The writes for all cliques of a domain.
#[derive(Debug, Default)]
pub(super) struct CliquePlan {
    pub(super) writes: Vec<Write>,
    /// Cliques without a free index, and the members that wait for one.
    pub(super) full: Vec<(String, Vec<String>)>,
}

pub(super) fn plan(
    view: &View,
    members: &BTreeSet<&str>,
    daemons: &Daemons<'_>,
    config: &Config,
) -> CliquePlan {
    let mut plan = CliquePlan::default();
    let wanted: BTreeSet<&str> =
        members.iter().filter_map(|node| view.clique_label(node)).collect();
    for id in wanted {
        if !view.cliques.iter().any(|clique| clique.id == id) {
            plan.writes.push(Write::Create(wanted::clique(&view.uid, id, config)));
        }
    }
    for clique in view.cliques.iter().filter(|clique| !clique.object.is_deleting) {
        let Some(seen) = clique.index_changes.filter(|_| has_labels(clique, &view.uid)) else {
            let object = clique.object.clone();
            let labels = Clique::labels(&view.uid, &clique.id);
            let counts = clique.index_changes.is_some();
            plan.writes.push(Write::LabelClique { object, labels, counts });
            continue;
        };
        if let Some(removal) = remove_stale(members, daemons, clique) {
            plan.writes.push(removal);
            continue;
        }
        let indices =
            Indices::of(members, daemons, clique, config.max_nodes_per_imex_domain.into());
        if !indices.waiting.is_empty() {
            plan.full.push((clique.id.clone(), indices.waiting));
        }
        if !indices.changes.is_empty() {
            let object = clique.object.clone();
            plan.writes.push(Write::AssignIndices { object, seen, changes: indices.changes });
        }
    }
    plan
}

fn has_labels(clique: &Clique, domain: &str) -> bool {
    Clique::labels(domain, &clique.id).iter().all(|(key, value)| match *key {
        LABEL_COMPUTE_DOMAIN => clique.object.domain.as_ref() == Some(value),
        LABEL_COMPUTE_DOMAIN_CLIQUE => clique.id_label.as_ref() == Some(value),
        _ => true,
    })
}

/// Removes entries whose node is no member and has no daemon any more, or has another clique now.
fn remove_stale(members: &BTreeSet<&str>, daemons: &Daemons<'_>, clique: &Clique) -> Option<Write> {
    let is_stale = |daemon: &ComputeDomainDaemon| {
        let node = daemon.node_name.as_str();
        let is_gone = !members.contains(node) && daemons.pod(node).is_none();
        is_gone || daemons.clique(node).is_some_and(|other| other.id != clique.id)
    };
    let stale = clique.daemons.iter().enumerate().filter(|(_, daemon)| is_stale(daemon)).rev();
    let entries: Vec<_> = stale
        .map(|(position, daemon)| (position, daemon.node_name.clone(), daemon.ip_address.clone()))
        .collect();
    let object = clique.object.clone();
    (!entries.is_empty()).then_some(Write::RemoveEntries { object, entries })
}

/// The indices of a clique.
struct Indices {
    /// The entries whose index changes.
    changes: Vec<IndexChange>,
    /// Members for which none is free.
    waiting: Vec<String>,
}

impl Indices {
    /// Present indices stay. Members without one get the lowest free one, in order of names.
    fn of(members: &BTreeSet<&str>, daemons: &Daemons<'_>, clique: &Clique, limit: i64) -> Self {
        let entries: BTreeMap<&str, Option<i64>> =
            clique.daemons.iter().map(|daemon| (daemon.node_name.as_str(), daemon.index)).collect();
        let mut given: BTreeMap<&str, i64> = BTreeMap::new();
        let mut taken: BTreeSet<i64> = BTreeSet::new();
        // Of two daemons with the same index, which NVIDIA's may have had, a member keeps it.
        let mut kept: Vec<(&str, i64)> =
            entries.iter().filter_map(|(node, index)| Some((*node, (*index)?))).collect();
        kept.sort_by_key(|(node, _)| (!members.contains(node), *node));
        for (node, index) in kept {
            if taken.insert(index) {
                given.insert(node, index);
            }
        }
        let mut free = (0..limit).filter(|index| !taken.contains(index));
        let mut waiting = Vec::new();
        let here = |node: &&str| daemons.clique(node).is_some_and(|c| c.id == clique.id);
        for node in members.iter().filter(|node| entries.contains_key(**node)).filter(|n| here(n)) {
            if given.contains_key(node) {
                continue;
            }
            match free.next() {
                Some(index) => {
                    given.insert(node, index);
                }
                None => waiting.push((*node).to_owned()),
            }
        }
        let changes = clique.daemons.iter().enumerate().filter_map(|(position, daemon)| {
            let index = given.get(daemon.node_name.as_str()).copied();
            let node = daemon.node_name.clone();
            (index != daemon.index).then_some(IndexChange { position, node, index })
        });
        Self { changes: changes.collect(), waiting }
    }
}
