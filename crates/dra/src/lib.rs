//! Dynamic resource allocation as pure values: quantities, versions, slices and claims; and what an
//! allocator makes of them.
//!
//! ```text
//! slices --pools--> devices --class and request selectors (cel)--> candidates
//!        candidates --taints, counters, capacity, constraints (allocate)--> allocation, or why not
//! ```
//!
//! Nothing here does I/O or knows a client library: the programs convert Kubernetes objects to
//! these types at their edge (`kube-io`) and decide on them.

#![forbid(unsafe_code)]

pub mod claim;
pub mod node;
pub mod quantity;
pub mod slice;
pub mod version;

pub use claim::{
    Allocation, AllocationResult, Ask, Claim, Class, Constraint, Count, DeviceRequest, Request,
    Rule, Toleration,
};
pub use node::{Node, NodeOperator, NodeRequirement, NodeSelector, NodeSelectorTerm};
pub use quantity::Quantity;
pub use slice::{
    AllowedAmounts, AttributeValue, Capacity, CounterConsumption, CounterSet, Device, DeviceTaint,
    NodeScope, RequestPolicy, Slice, TaintEffect,
};
