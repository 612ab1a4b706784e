//! Node scopes of devices: node names and node selectors.

use k8s_openapi::api::core::v1 as core;
use octavo_dra::{NodeOperator, NodeRequirement, NodeScope, NodeSelector, NodeSelectorTerm};

use super::SliceError;

/// The node scope from its four fields; `None` if all are unset.
pub(super) fn scope(
    node: Option<&str>,
    selector: Option<&core::NodeSelector>,
    all: Option<bool>,
    per_device: Option<bool>,
) -> Result<Option<NodeScope>, SliceError> {
    Ok(match (node.filter(|node| !node.is_empty()), selector) {
        (Some(node), _) => Some(NodeScope::Node(node.to_owned())),
        (None, Some(selector)) => Some(NodeScope::Selector(node_selector_from_api(selector)?)),
        (None, None) if per_device == Some(true) => Some(NodeScope::PerDevice),
        (None, None) if all == Some(true) => Some(NodeScope::All),
        (None, None) => None,
    })
}

/// Reads a node selector.
pub fn node_selector_from_api(selector: &core::NodeSelector) -> Result<NodeSelector, SliceError> {
    let requirement = |requirement: &core::NodeSelectorRequirement| {
        let operator = match requirement.operator.as_str() {
            "In" => NodeOperator::In,
            "NotIn" => NodeOperator::NotIn,
            "Exists" => NodeOperator::Exists,
            "DoesNotExist" => NodeOperator::DoesNotExist,
            "Gt" => NodeOperator::Gt,
            "Lt" => NodeOperator::Lt,
            other => return Err(SliceError::Operator(other.to_owned())),
        };
        let values = requirement.values.clone().unwrap_or_default();
        Ok(NodeRequirement { key: requirement.key.clone(), operator, values })
    };
    let requirements = |list: &Option<Vec<core::NodeSelectorRequirement>>| {
        list.iter().flatten().map(requirement).collect::<Result<Vec<_>, _>>()
    };
    let term = |term: &core::NodeSelectorTerm| {
        Ok(NodeSelectorTerm {
            labels: requirements(&term.match_expressions)?,
            fields: requirements(&term.match_fields)?,
        })
    };
    let terms = selector.node_selector_terms.iter().map(term).collect::<Result<_, _>>()?;
    Ok(NodeSelector { terms })
}

/// Writes a node selector as the API's.
pub fn node_selector_to_api(selector: &NodeSelector) -> core::NodeSelector {
    let requirement = |requirement: &NodeRequirement| core::NodeSelectorRequirement {
        key: requirement.key.clone(),
        operator: match requirement.operator {
            NodeOperator::In => "In",
            NodeOperator::NotIn => "NotIn",
            NodeOperator::Exists => "Exists",
            NodeOperator::DoesNotExist => "DoesNotExist",
            NodeOperator::Gt => "Gt",
            NodeOperator::Lt => "Lt",
        }
        .to_owned(),
        values: (!requirement.values.is_empty()).then(|| requirement.values.clone()),
    };
    let requirements = |list: &[NodeRequirement]| {
        (!list.is_empty()).then(|| list.iter().map(requirement).collect::<Vec<_>>())
    };
    let term = |term: &NodeSelectorTerm| core::NodeSelectorTerm {
        match_expressions: requirements(&term.labels),
        match_fields: requirements(&term.fields),
    };
    core::NodeSelector { node_selector_terms: selector.terms.iter().map(term).collect() }
}
