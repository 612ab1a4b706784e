//! The scheduler. Watch events of a cluster come in; allocated claims and bound pods go out.
//!
//! ```text
//!  API server --watches (kube-io)--> changes --.
//!                                              v
//!       groups: which pods form a gang    +--> state: one thread, no I/O
//!       predicates: node filters          |    cache, engine state, queue --decisions--> write operations
//!       devices: slices, classes, claims -+        ^                                          |
//!                                                  '---- results ------ bind: concurrent <----'
//!                                                                    status: conditions, events, aggregated
//! ```
//!
//! A decision is assumed at once, and `bind` writes it. A write that fails is forgotten, and its pod is
//! decided again. The modules that decide (`state`, `predicates`, `devices`, `groups`) are synchronous,
//! do no I/O and have no clock. The same changes in the same order give the same write operations.

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
