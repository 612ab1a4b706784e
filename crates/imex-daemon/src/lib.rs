//! `octavo imex-daemon`: runs `nvidia-imex` in a daemon pod of a `ComputeDomain`, and keeps the node's entry in its clique.
//!
//! ```text
//! clique object --> index and addresses --> hosts file, SIGUSR1 --> nvidia-imex
//!      ^                                                                 |
//!      +---- entry of this node: address, readiness <-- nvidia-imex-ctl -+
//! ```

#![forbid(unsafe_code)]

mod args;
mod check;
mod clique;
mod ctl;
mod entry;
#[cfg(test)]
mod fake_cliques;
mod hosts;
mod polling;
mod reload;
mod run;
mod service;
mod service_config;
mod slots;
mod supervisor;
mod tls;

pub use args::{CheckArgs, ImexDaemonArgs, ImexDaemonCommand, RunArgs};
pub use run::run;
