//! The simulator: replayed traces of whole clusters, synthetic clusters and what-if questions.
//!
//! ```text
//! node list, pod list --trace--> rows --arrivals (go_rand)--> order of events --replay (policy)--> metrics, log
//!                                                                                 log --validate--> totals
//!                                                       output, report <-- runs, published reference figures
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`trace`] | reads openb's lists and reports errors in them |
//! | [`arrivals`], [`go_rand`] | the arrival order of FGD's authors, with Go's random numbers |
//! | [`trace_cluster`] | the engine's nodes and shapes of a trace |
//! | [`replay`], [`metrics`] | places each pod by a policy and measures the result |
//! | [`classic`] | published policies to compare with |
//! | [`validate`] | replays the placements in its own accounts; shares no code with a policy |
//! | [`output`], [`report`], [`published`] | tables, JSON, an HTML page, and the authors' own figures |
//! | [`generate`] | synthetic clusters and lists |
//! | [`whatif`], [`document`] | what-if questions about a cluster's document |
//! | [`cli`], [`run`] | the command `octavo sim` |

#![forbid(unsafe_code)]

pub mod arrivals;
pub mod classic;
pub mod cli;
pub mod document;
pub mod faults;
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
