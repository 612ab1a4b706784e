//! The controller: `ComputeDomains`, from claims, nodes and daemons to labels, indices and status; the health of GPUs, from policies
//! and the reports of agents to permits and evictions (`health`); and a webhook that translates pods of HAMi and KAI Scheduler
//! (`translation`).
//!
//! ```text
//!  API server --watches--> store: facts of objects, by version --.
//!      ^                     |                                   |
//!      |                     v domains that a change concerns    v view of one domain
//!      |                   queue: due times, backoff --------> plan: pure, all rules
//!      '------------------ writer: checks the lease <----------- writes, status, events
//! ```
//!
//! A pod of a claim is read once, for its gang. `plan` decides and does no I/O. A write is conditional on what was observed: a version, a UID, or a `test`. So a write that
//! was decided on an older state fails, and its domain is planned again. The object that a write returns enters the store at
//! once. While nothing changes, nothing is read or written.

#![forbid(unsafe_code)]

pub mod certificate;
pub mod config;
pub mod gangs;
pub mod health;
pub mod metrics;
pub mod plan;
pub mod seen;
mod shell;
pub mod store;
pub mod switch;
#[cfg(test)]
mod testing;
mod translation;
pub mod view;
pub mod wanted;

pub use config::ControllerArgs;
pub use shell::run;
