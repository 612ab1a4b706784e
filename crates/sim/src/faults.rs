//! What a health policy saves: one job on a fleet of servers that fail, under several policies.
//!
//! ```text
//! study (document) --> simulation: policy, seed --> outcome --> summary over seeds --> table, JSON, page
//!                          |                                       ^
//!                          \-- published studies, cells of a sweep --/
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`study`], [`span`] | the document: fleet, job, failures, repairs, restarts |
//! | [`policy`] | which servers a policy takes, which it retires, how it goes on |
//! | `simulation`, `events`, `progress`, `servers`, `pool`, `members`, `choose` | the simulation |
//! | `history` | the risk of a server from its history, for the policy `octavo` |
//! | [`outcome`], [`runs`] | figures of one run, and many runs in parallel |
//! | [`summary`], [`sweep`] | a policy over its seeds, and a study with other values |
//! | [`published`] | studies whose figures are published |
//! | [`args`], `table`, `page` | the command `octavo sim faults` and what it writes |
//!
//! Times are whole milliseconds. A run depends on study, policy and seed only.

pub mod args;
mod choose;
mod events;
mod history;
mod members;
mod number;
pub mod outcome;
mod page;
pub mod policy;
mod pool;
mod progress;
pub mod published;
pub mod runs;
mod servers;
mod simulation;
pub mod span;
pub mod study;
pub mod summary;
pub mod sweep;
mod table;

pub use simulation::simulate;
