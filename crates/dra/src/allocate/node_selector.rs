//! The node selector of an allocation: the nodes that can reach all of its devices.

use super::error::AllocateError;
use super::node_context::NodeContext;
use super::partial_allocation::Pick;
use crate::node::{NodeOperator, NodeRequirement, NodeSelector, NodeSelectorTerm};
use crate::slice::NodeScope;

/// The node selector for a claim's devices; `None` for all nodes.
///
/// A device local to one node, or one with `bindsToNode`, restricts the claim to the node of the
/// allocation. Otherwise the selector combines the requirements of all devices.
pub(super) fn node_selector(
    context: &NodeContext<'_, '_>,
    picks: &[Pick<'_>],
) -> Result<Option<NodeSelector>, AllocateError> {
    let mut term = NodeSelectorTerm::default();
    for pick in picks {
        let published = context.published(pick.candidate.device);
        let slice = context.allocator.inventory.slices[published.slice];
        let scope = match &slice.nodes {
            NodeScope::PerDevice => published.device.nodes.as_ref(),
            scope => Some(scope),
        };
        if matches!(scope, Some(NodeScope::Node(_))) || published.device.binds_to_node {
            return Ok(Some(single_node(&context.node.name)));
        }
        let Some(NodeScope::Selector(selector)) = scope else { continue };
        match selector.terms.as_slice() {
            [] => {}
            [one] => {
                add(&mut term.fields, &one.fields);
                add(&mut term.labels, &one.labels);
            }
            terms => {
                let slice = slice.name.clone();
                return Err(AllocateError::NodeSelectorTerms { slice, terms: terms.len() });
            }
        }
    }
    let is_empty = term.fields.is_empty() && term.labels.is_empty();
    Ok((!is_empty).then(|| NodeSelector { terms: vec![term] }))
}

/// Selects one node.
fn single_node(node: &str) -> NodeSelector {
    let name = NodeRequirement {
        key: "metadata.name".to_owned(),
        operator: NodeOperator::In,
        values: vec![node.to_owned()],
    };
    NodeSelector { terms: vec![NodeSelectorTerm { labels: Vec::new(), fields: vec![name] }] }
}

/// Adds missing requirements. The order of values does not matter.
fn add(to: &mut Vec<NodeRequirement>, from: &[NodeRequirement]) {
    let values = |one: &NodeRequirement| {
        let mut values = one.values.clone();
        values.sort_unstable();
        values.dedup();
        values
    };
    for one in from {
        let is_same = |other: &NodeRequirement| {
            (&other.key, other.operator) == (&one.key, one.operator) && values(other) == values(one)
        };
        if !to.iter().any(is_same) {
            to.push(one.clone());
        }
    }
}
