//! What a change means for those who look at devices.

use std::collections::BTreeSet;
use std::sync::Arc;

use octavo_kube_io::objects::ObjectName;

/// What a change means for those who look at devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Invalidation {
    /// Nodes whose hardware may have changed: look at [`super::Devices::gpus`] anew.
    pub hardware: BTreeSet<Arc<str>>,
    /// Nodes of whose devices something else may be held: look at [`super::Devices::held`] anew.
    pub holdings: BTreeSet<Arc<str>>,
    /// Whether devices that several nodes reach are held or free otherwise than before.
    pub is_shared_pool_touched: bool,
    /// Claims that changed, came or went.
    pub claims: BTreeSet<ObjectName>,
    /// Whether the table of models is another: indexes into the old one mean nothing any more.
    pub are_models_changed: bool,
    /// Whether a class changed: every ask may mean something else.
    pub are_classes_changed: bool,
}

impl Invalidation {
    /// Adds what another change means.
    pub fn add(&mut self, other: Self) {
        self.hardware.extend(other.hardware);
        self.holdings.extend(other.holdings);
        self.is_shared_pool_touched |= other.is_shared_pool_touched;
        self.claims.extend(other.claims);
        self.are_models_changed |= other.are_models_changed;
        self.are_classes_changed |= other.are_classes_changed;
    }

    /// Whether it means nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
