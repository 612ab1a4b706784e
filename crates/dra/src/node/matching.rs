//! Matches nodes with node selectors.

use super::{Node, NodeOperator, NodeRequirement, NodeSelector, NodeSelectorTerm};

/// A malformed node selector. The API server rejects these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("node selector requires {key} {operator:?} {values:?}: {reason}")]
pub struct NodeSelectorError {
    /// Key of the requirement.
    pub key: String,
    /// Its operator.
    pub operator: NodeOperator,
    /// Its values.
    pub values: Vec<String>,
    /// What is wrong.
    pub reason: &'static str,
}

impl NodeSelector {
    /// Whether a node matches any term. Every term must be well formed, even one that does not
    /// decide.
    pub fn matches(&self, node: &Node) -> Result<bool, NodeSelectorError> {
        let mut is_match = false;
        for term in &self.terms {
            is_match |= term.matches(node)?;
        }
        Ok(is_match)
    }
}

impl NodeSelectorTerm {
    fn matches(&self, node: &Node) -> Result<bool, NodeSelectorError> {
        let mut is_match = !(self.labels.is_empty() && self.fields.is_empty());
        for requirement in &self.labels {
            is_match &= requirement.matches_label(node)?;
        }
        for requirement in &self.fields {
            is_match &= requirement.matches_field(node)?;
        }
        Ok(is_match)
    }
}

impl NodeRequirement {
    fn matches_label(&self, node: &Node) -> Result<bool, NodeSelectorError> {
        let value = node.labels.get(&self.key);
        Ok(match self.operator {
            NodeOperator::In | NodeOperator::NotIn if self.values.is_empty() => {
                return Err(self.error("at least one value is needed"));
            }
            NodeOperator::Exists | NodeOperator::DoesNotExist if !self.values.is_empty() => {
                return Err(self.error("no value is allowed"));
            }
            NodeOperator::In => value.is_some_and(|value| self.values.contains(value)),
            NodeOperator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            NodeOperator::Exists => value.is_some(),
            NodeOperator::DoesNotExist => value.is_none(),
            NodeOperator::Gt | NodeOperator::Lt => {
                let bound = match self.values.as_slice() {
                    [bound] => bound.parse::<i64>().ok(),
                    _ => None,
                };
                let bound = bound.ok_or_else(|| self.error("one integer is needed"))?;
                let value = value.and_then(|value| value.parse::<i64>().ok());
                value.is_some_and(|value| match self.operator {
                    NodeOperator::Gt => value > bound,
                    _ => value < bound,
                })
            }
        })
    }

    /// As in Kubernetes, unknown fields are empty.
    fn matches_field(&self, node: &Node) -> Result<bool, NodeSelectorError> {
        let [wanted] = self.values.as_slice() else {
            return Err(self.error("a field needs exactly one value"));
        };
        let value = if self.key == "metadata.name" { node.name.as_str() } else { "" };
        match self.operator {
            NodeOperator::In => Ok(value == wanted),
            NodeOperator::NotIn => Ok(value != wanted),
            _ => Err(self.error("a field supports only In and NotIn")),
        }
    }

    fn error(&self, reason: &'static str) -> NodeSelectorError {
        NodeSelectorError {
            key: self.key.clone(),
            operator: self.operator,
            values: self.values.clone(),
            reason,
        }
    }
}
