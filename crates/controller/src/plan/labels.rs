//! The label of nodes: one domain a node.

use super::Write;
use crate::view::{NodeFacts, View};

/// Sets and removes the domain's label.
///
/// Each node's label is decided from all member claims there, so the plans of two domains agree: the domain in the label
/// keeps it while it has a claim there; else the one with the lowest UID gets it; without a claim nothing does.
pub(super) fn plan(view: &View) -> Vec<Write> {
    let members = view.members();
    let writes = view.nodes.iter().filter_map(|(node, facts)| {
        let is_member = members.contains(node.as_str());
        let is_labelled = facts.label.as_ref() == Some(&view.uid);
        must_change(view, node, facts, is_member).then(|| Write::LabelNode {
            node: node.clone(),
            before: facts.label.clone(),
            domain: (!is_labelled).then(|| view.uid.clone()),
        })
    });
    writes.collect()
}

/// Removes the domain's label from all nodes: it has no daemons of its own.
pub(super) fn removals(view: &View) -> Vec<Write> {
    let labelled = view.nodes.iter().filter(|(_, facts)| facts.label.as_ref() == Some(&view.uid));
    let writes = labelled.map(|(node, facts)| Write::LabelNode {
        node: node.clone(),
        before: facts.label.clone(),
        domain: None,
    });
    writes.collect()
}

/// Whether this domain must remove its label, or set it.
fn must_change(view: &View, node: &str, facts: &NodeFacts, is_member: bool) -> bool {
    let uid = &view.uid;
    if facts.label.as_ref() == Some(uid) {
        // The pods of a domain that was removed by force still run.
        let is_orphan_used =
            view.domain.is_none() && view.claims.iter().any(|claim| claim.node == node);
        let is_kept = is_member || is_orphan_used || !facts.others.is_empty();
        return !is_kept;
    }
    let is_held = facts.label.as_ref().is_some_and(|label| facts.others.contains(label));
    let is_first = facts.others.first().is_none_or(|other| uid < other);
    is_member && !is_held && is_first
}
