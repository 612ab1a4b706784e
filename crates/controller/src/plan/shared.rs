//! The IMEX domains of cliques, which domains share: daemons, cliques, and indices.

use std::collections::{BTreeMap, BTreeSet};

use super::{Plan, Write, certificate, cliques, objects, teardown};
use crate::config::Config;
use crate::view::View;
use crate::wanted::DaemonsOf;

/// Keeps the daemons on all nodes with a clique. A node keeps its index while it has the label of its clique.
pub(super) fn plan(view: &View, config: &Config) -> Plan {
    let nodes = view.nodes.iter().filter(|(_, facts)| facts.clique.is_some());
    let members: BTreeSet<&str> = nodes.map(|(name, _)| name.as_str()).collect();
    let cliques: BTreeSet<&str> =
        view.nodes.values().filter_map(|facts| facts.clique.as_deref()).collect();
    let mut writes: Vec<Write> = if certificate::must_restart(view, config) && !view.shared.is_used
    {
        view.daemon_sets.iter().filter_map(teardown::delete).collect()
    } else if certificate::has_other_daemons(view, config) {
        Vec::new()
    } else {
        objects::daemons(view, DaemonsOf::Cliques, config).into_iter().collect()
    };
    writes.extend(cliques::plan(view, &members, &view.daemons(), config).writes);
    let is_left = |id: &str| !cliques.contains(id);
    let left = view.cliques.iter().filter(|it| is_left(&it.id) && it.daemons.is_empty());
    writes.extend(left.filter_map(|clique| teardown::delete(&clique.object)));
    Plan { writes, ..Plan::default() }
}

/// Shared cliques without a free index, and the members of a domain that wait for one.
pub(super) fn full(
    view: &View,
    members: &BTreeSet<&str>,
    config: &Config,
) -> Vec<(String, Vec<String>)> {
    let limit = usize::try_from(config.max_nodes_per_imex_domain).unwrap_or(usize::MAX);
    let mut full: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for clique in &view.shared.cliques {
        let (given, waiting): (Vec<_>, Vec<_>) =
            clique.daemons.iter().partition(|daemon| daemon.index.is_some());
        let waiting = waiting.into_iter().map(|daemon| daemon.node_name.as_str());
        let waiting = waiting.filter(|node| {
            members.contains(node) && view.clique_label(node) == Some(clique.id.as_str())
        });
        let waiting: Vec<String> = waiting.map(str::to_owned).collect();
        if given.len() >= limit && !waiting.is_empty() {
            full.entry(&clique.id).or_default().extend(waiting);
        }
    }
    full.into_iter().map(|(clique, nodes)| (clique.to_owned(), nodes)).collect()
}
