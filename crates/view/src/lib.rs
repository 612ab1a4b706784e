//! What people see of a cluster: who holds which GPU, what shares have, and why a pod waits.
//!
//! [`fetch`] reads a [`snapshot::ClusterSnapshot`]; the pure functions [`top::top`], [`shares::shares`] and
//! [`explain::explain_pod`] turn it into reports; [`shares::read`] adds what the agents say, [`scheduler`] what the
//! scheduler does; [`output`] and the renderers write them. The commands of the `octavo` binary are in
//! [`command`].

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
mod device;
mod table;

#[cfg(test)]
mod fixtures;

pub use command::{ExplainArgs, ExplainStatus, TopArgs, run_explain, run_top};
pub use error::ViewError;
pub use scheduler::Scheduler;
