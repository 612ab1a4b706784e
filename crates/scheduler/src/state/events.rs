//! What changes of observed objects, and of the lease, mean for the owners of state.

pub(super) mod apply;
pub(super) mod leadership;
pub(super) mod lost_nodes;
pub(super) mod membership;
pub(super) mod nodes;
pub(super) mod pods;
pub(super) mod requests;
pub(super) mod small_gangs;
