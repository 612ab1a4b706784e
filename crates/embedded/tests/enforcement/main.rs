//! The guard in separate processes: C programs, a small driver, and shares in a folder.
//!
//! The tests do the agent's work: they write limits and listen on the socket. The shared object is
//! the embedded one, except that its paths are below the working directory (feature `test-paths`).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests may fail loudly, and some print figures"
)]

mod built;
mod container;

mod agent;
mod faults;
mod limits;
mod lookup;
mod musl;
mod processes;
mod simulated;
