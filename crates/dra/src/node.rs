//! Nodes and node selectors (`core/v1` `NodeSelector`).

mod matching;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use matching::NodeSelectorError;

/// The part of a node that allocation needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Name, which is also the field `metadata.name`.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// Matches nodes that match any of its terms. Without terms it matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSelector {
    /// The terms.
    pub terms: Vec<NodeSelectorTerm>,
}

/// Matches nodes that meet all of its requirements. Without requirements it matches no node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSelectorTerm {
    /// Requirements on labels (`matchExpressions`).
    pub labels: Vec<NodeRequirement>,
    /// Requirements on fields (`matchFields`); the only known field is `metadata.name`.
    pub fields: Vec<NodeRequirement>,
}

/// A requirement on a label or field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeRequirement {
    /// Key of the label or field.
    pub key: String,
    /// Relation to the values.
    pub operator: NodeOperator,
    /// The values: none for `Exists` and `DoesNotExist`, one whole number for `Gt` and `Lt`.
    pub values: Vec<String>,
}

/// Operator of a [`NodeRequirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeOperator {
    /// The value is in the list.
    In,
    /// The value is not in the list, or the key is absent.
    NotIn,
    /// The key is present.
    Exists,
    /// The key is absent.
    DoesNotExist,
    /// The value is an integer greater than the given one.
    Gt,
    /// The value is an integer less than the given one.
    Lt,
}
