//! What a change of devices invalidates.

use std::collections::BTreeSet;

use octavo_kube_io::objects::{NodeName, ObjectName};

/// What a change of devices invalidates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invalidation {
    /// Nodes whose hardware may have changed: re-read [`super::Devices::gpus`].
    pub hardware: BTreeSet<NodeName>,
    /// Nodes whose holdings may have changed: re-read [`super::Devices::held`].
    pub holdings: BTreeSet<NodeName>,
    /// Whether the holdings of a pool changed that several nodes reach.
    pub is_shared_pool_touched: bool,
    /// Claims that were added, changed or removed.
    pub claims: BTreeSet<ObjectName>,
    /// Whether the table of GPU models changed, which invalidates indexes into it.
    pub are_models_changed: bool,
    /// Whether a class changed, which invalidates every ask.
    pub are_classes_changed: bool,
}

impl Invalidation {
    /// Whether nothing is invalidated.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
