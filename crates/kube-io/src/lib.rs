//! Kubernetes plumbing that the programs share: the API client, watches, a node's slices, claim
//! status, leases, events, the admin server and the page of its metrics.

#![forbid(unsafe_code)]

pub mod admin;
mod backoff;
pub mod claims;
pub mod client;
pub mod events;
pub mod lease;
pub mod listener;
mod metrics_page;
pub mod objects;
pub mod slices;
pub mod watch;

pub use backoff::Backoff;
pub use metrics_page::metrics_page;
