//! The simulator: a trace of a whole cluster, replayed.
//!
//! ```text
//! node list, pod list --trace--> rows --arrivals (go_rand)--> the order of events --(policy)--> log --validate--> totals
//!                                                                     figures to compare with: published
//! ```
//!
//! [`trace`] reads openb's lists and says what is wrong with them. [`arrivals`] puts the pods in the
//! order in which FGD's authors let them arrive, for which [`go_rand`] draws Go's random numbers.
//! [`published`] holds the authors' own figures. [`validate`] replays what a policy did in its own
//! simple accounts and shares no code with any policy.

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod go_rand;
pub mod published;
pub mod trace;
pub mod validate;
