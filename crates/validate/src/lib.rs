//! `octavo validate`: proves that nodes can serve GPUs, as the validator of NVIDIA's GPU Operator does.
//!
//! | module | purpose |
//! |---|---|
//! | `node` | the checks, on the node itself, and the status files for which other programs wait |
//! | `cluster` | a Job for each step of each node, which runs these checks; it is removed at the end |
//! | `offer` | what a node offers: devices for claims, or counted resources |
//! | `slices` | reads the slices of nodes |
//! | `report` | the results, for people and programs |

#![forbid(unsafe_code)]

mod args;
mod cluster;
mod node;
mod offer;
mod report;
mod slices;

pub use args::{NodeArgs, ValidateArgs, ValidateCommand};
pub use report::{Component, ValidateStatus};

/// Runs `octavo validate`, for nodes of a cluster or on a node itself.
///
/// # Errors
///
/// The cluster cannot be read, there is nothing to validate, the command is interrupted, or a status file cannot be removed. A
/// component that is not ready is no error, but a result.
pub async fn run(args: &ValidateArgs) -> anyhow::Result<ValidateStatus> {
    match &args.command {
        Some(ValidateCommand::Node(args)) => node::run(args).await,
        None => cluster::run(args).await,
    }
}
