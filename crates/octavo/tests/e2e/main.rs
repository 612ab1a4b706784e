//! End to end: the real API server, controllers and scheduler, the real agent, simulated
//! hardware. Every test starts a lab of its own and ends it, also when it fails.

#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod bed;
mod chart;
mod claims;
mod hardware;
mod memory_enforcement;
mod mig;
mod outages;
mod real_node;
mod rolling;
mod scheduler;
mod scheduler_faults;
mod shares;
mod tour;
