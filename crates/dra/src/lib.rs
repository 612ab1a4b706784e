//! Dynamic resource allocation as pure values: quantities, versions, slices and claims.
//!
//! Nothing here does I/O or knows a client library: the programs convert Kubernetes objects to
//! these types at their edge (`kube-io`) and decide on them.

#![forbid(unsafe_code)]

pub mod quantity;
pub mod slice;
pub mod version;

pub use quantity::Quantity;
pub use slice::{AttributeValue, Device, DeviceTaint, Slice, TaintEffect};
