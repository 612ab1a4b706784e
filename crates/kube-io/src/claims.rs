//! Claims, classes and nodes as pure values, from the API's objects; requests and allocations to
//! them, too.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::{claim_from_api, class_from_api, node_from_api};
pub use write::{allocation_to_api, request_to_api};

use crate::slices::SliceError;

/// Why a `ResourceClaim` or `DeviceClass` has no meaning for an allocator: a later Kubernetes may
/// know more than this one does. The name of the object is not in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// A request asks for nothing that is known.
    #[error("request {request} asks neither for devices nor for the first available of several")]
    Request {
        /// Name of the request.
        request: String,
    },
    /// A request's way of counting is unknown.
    #[error("request {request} has the unknown allocation mode {mode:?}")]
    Mode {
        /// Name of the request.
        request: String,
        /// The mode.
        mode: String,
    },
    /// A request's count is no count.
    #[error("request {request} asks for {count} devices")]
    Count {
        /// Name of the request.
        request: String,
        /// The count.
        count: i64,
    },
    /// A selector is no CEL expression.
    #[error("{of} has a selector without a CEL expression")]
    Selector {
        /// What has the selector: a request or a class.
        of: String,
    },
    /// A constraint is of an unknown kind.
    #[error("constraint {index} says neither matchAttribute nor distinctAttribute")]
    Constraint {
        /// Which constraint, from 0.
        index: usize,
    },
    /// An amount is no quantity.
    #[error("{of} has for {name} the amount {value:?}, which is no quantity")]
    Quantity {
        /// What has the amount: a request or an allocated device.
        of: String,
        /// Name of the capacity.
        name: String,
        /// The amount.
        value: String,
    },
    /// The node selector of an allocation cannot be read.
    #[error("the allocation's node selector cannot be read: {0}")]
    Nodes(SliceError),
}
