//! Kubernetes plumbing that the programs share: the API client, watches, a node's slices, claim
//! status, leases, events and the admin server.

#![forbid(unsafe_code)]

pub mod admin;
mod backoff;
pub mod claims;
pub mod client;
pub mod events;
pub mod lease;
pub mod objects;
pub mod slices;
pub mod watch;

pub use backoff::Backoff;
