//! Cluster reports for people: who holds which GPU, the use of shares, and why a pod waits.
//!
//! | module | purpose |
//! |---|---|
//! | [`fetch`] | reads a [`snapshot::ClusterSnapshot`] from the API server |
//! | [`top`], [`shares`], [`explain`] | pure functions from a snapshot to a report |
//! | [`shares::read`] | adds the figures of the agents |
//! | [`scheduler`] | adds the explanation of Octavo's scheduler |
//! | [`output`] and the renderers | write reports |
//! | [`command`] | the commands of the `octavo` binary |

#![forbid(unsafe_code)]

pub mod command;
pub mod connect;
pub mod error;
pub mod explain;
pub mod fetch;
pub mod output;
pub mod scheduler;
pub mod shares;
pub mod snapshot;
pub mod top;
pub mod usage;

mod address;
mod age;
mod device;

#[cfg(test)]
mod fixtures;

pub use command::{ExplainArgs, ExplainStatus, TopArgs, run_explain, run_top};
pub use error::ViewError;
pub use scheduler::Scheduler;
