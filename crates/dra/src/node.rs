//! Nodes as an allocator sees them, and selectors over them (`core/v1` `NodeSelector`).

mod matching;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

pub use matching::NodeSelectorError;

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Name: also its field `metadata.name`.
    pub name: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// Nodes that match any of its terms. Without terms it matches none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSelector {
    /// The terms.
    pub terms: Vec<NodeSelectorTerm>,
}

/// Nodes that match all of its requirements. Without any it matches none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSelectorTerm {
    /// Requirements on labels (`matchExpressions`).
    pub labels: Vec<NodeRequirement>,
    /// Requirements on fields (`matchFields`): `metadata.name` alone is known.
    pub fields: Vec<NodeRequirement>,
}

/// A requirement on a label or field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeRequirement {
    /// Key of the label or field.
    pub key: String,
    /// How the values are meant.
    pub operator: NodeOperator,
    /// The values: none for `Exists` and `DoesNotExist`, one whole number for `Gt` and `Lt`.
    pub values: Vec<String>,
}

/// Operator of a [`NodeRequirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NodeOperator {
    /// The value is one of them.
    In,
    /// The value is none of them, or there is no such key.
    NotIn,
    /// There is such a key.
    Exists,
    /// There is no such key.
    DoesNotExist,
    /// The value is a greater whole number.
    Gt,
    /// The value is a smaller whole number.
    Lt,
}
