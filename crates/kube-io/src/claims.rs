//! Conversion of claims, classes and nodes from the API's objects, and of requests and allocations
//! to them.

mod read;
#[cfg(test)]
mod tests;
mod write;

pub use read::{claim_from_api, class_from_api, node_from_api};
pub use write::{allocation_to_api, request_to_api, result_to_api, toleration_to_api};

use crate::slices::SliceError;

/// Why an allocator cannot use a `ResourceClaim` or `DeviceClass`: a later Kubernetes may have
/// written it. It does not hold the object's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClaimError {
    /// A request has neither of the known forms.
    #[error("request {request} has neither exactly nor firstAvailable")]
    Request {
        /// Name of the request.
        request: String,
    },
    /// A request's allocation mode is unknown.
    #[error("request {request} has the unknown allocation mode {mode:?}")]
    Mode {
        /// Name of the request.
        request: String,
        /// The mode.
        mode: String,
    },
    /// A request's count is negative.
    #[error("request {request} asks for {count} devices")]
    Count {
        /// Name of the request.
        request: String,
        /// The count.
        count: i64,
    },
    /// A selector has no CEL expression.
    #[error("{of} has a selector without a CEL expression")]
    Selector {
        /// The request or class with the selector.
        of: String,
    },
    /// A constraint has an unknown relation.
    #[error("constraint {index} has neither matchAttribute nor distinctAttribute")]
    Constraint {
        /// Index of the constraint, from 0.
        index: usize,
    },
    /// An amount is not a quantity.
    #[error("{of} has for {name} the amount {value:?}, which is not a quantity")]
    Quantity {
        /// The request or allocated device with the amount.
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
