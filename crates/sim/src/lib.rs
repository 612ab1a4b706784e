//! The simulator: traces of whole clusters, replayed; synthetic clusters; what-if questions.
//!
//! ```text
//! node list, pod list --trace--> rows --arrivals (go_rand)--> order of events --replay (policy)--> metrics, log
//!                                                                                 log --validate--> totals
//!                                                       output, report <-- runs, figures to compare with: published
//! ```
//!
//! [`trace`] reads openb's lists and says what is wrong with them. [`arrivals`] puts the pods in the
//! order in which FGD's authors let them arrive, for which [`go_rand`] draws Go's random numbers.
//! [`trace_cluster`] makes the engine's nodes and shapes of rows, and [`replay`] asks a policy for a
//! place for each pod and measures by [`metrics`]. [`published`] holds the authors' own figures.
//! [`validate`] replays what a policy did in its own simple accounts and shares no code with any
//! policy. [`report`] makes a page of runs, [`generate`] synthetic clusters and lists, [`whatif`]
//! asks a cluster's [`document`] what would fit; [`cli`] and [`run`] are `octavo sim`.

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod cli;
pub mod document;
pub mod generate;
pub mod go_rand;
pub mod metrics;
pub mod output;
pub mod published;
pub mod replay;
pub mod report;
pub mod run;
pub mod trace;
pub mod trace_cluster;
pub mod validate;
pub mod whatif;
