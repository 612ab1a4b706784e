//! Dynamic resource allocation as pure values: slices, claims and classes, and the allocator.
//!
//! ```text
//! slices --pools--> devices --class and request selectors (octavo-cel)--> candidates
//!        candidates --taints, counters, capacity, constraints (allocate)--> allocation, or why not
//! ```
//!
//! Nothing here does I/O or knows a client library. Programs convert Kubernetes objects to these
//! types with `kube-io`.

#![forbid(unsafe_code)]

pub mod allocate;
pub mod claim;
pub mod classes;
pub mod extended;
pub mod features;
pub mod node;
pub mod pools;
pub mod slice;
pub mod version;

pub use allocate::{
    AllocateError, Allocator, ClaimRef, Clash, DeviceMismatch, DeviceRef, DeviceVerdict,
    Explanation, MAX_RESULTS_PER_CLAIM, Placed, RequestError, RequestExplanation, SliceIndex,
    consumed_capacity, prioritized_list_score,
};
pub use claim::{
    Allocation, AllocationResult, Ask, Claim, Class, Constraint, Count, DeviceRequest, Request,
    Rule, Toleration,
};
pub use classes::Classes;
pub use extended::{
    Container, ContainerKind, ExtendedClaim, NotServed, RequestMapping, extended_claim,
    is_extended_resource,
};
pub use features::{Feature, Features};
pub use node::{
    Node, NodeOperator, NodeRequirement, NodeSelector, NodeSelectorError, NodeSelectorTerm,
};
pub use octavo_cel::{AttributeValue, Quantity, quantity};
pub use pools::{PoolDefect, PoolRef};
pub use slice::{
    AllowedAmounts, Capacity, CounterConsumption, CounterSet, Device, DeviceTaint, NodeScope,
    RequestPolicy, Slice, TaintEffect,
};
