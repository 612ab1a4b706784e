//! The scheduler: what a cluster's API says goes in, claims allocated and pods bound come out.
//!
//! ```text
//!  API server --watches (kube-io)--> changes --.
//!                                              v
//!       groups: whose pods are a gang     +--> core: one thread, no I/O
//!       predicates: may a pod run there   |    mirror, engine's world, queue --decisions--> orders
//!       devices: slices, classes, claims -+        ^                                          |
//!                                                  '----outcomes---- bind: writes, in parallel <-'
//!                                                                    status: conditions, events, aggregated
//! ```
//!
//! What is decided is assumed at once and written by others; what could not be written is forgotten
//! and decided anew. Everything that decides (`core`, `predicates`, `devices`, `groups`) is
//! synchronous, does no I/O and has no clock: the same changes in the same order give the same orders.

#![forbid(unsafe_code)]

pub mod admin;
pub mod bind;
pub mod config;
pub mod devices;
mod event_loop;
pub mod groups;
pub mod metrics;
pub mod policies;
pub mod predicates;
mod run;
pub mod state;
pub mod status;
mod unmodeled_nodes;

pub use config::SchedulerArgs;
pub use run::run;
