//! The guard in processes of its own: programs of C, a driver of a few functions, and shares in a folder.
//!
//! What the agent would do (write limits, listen on the socket) the tests do. The shared object is the one
//! that is carried, but for its paths, which lie below the working directory here (feature `test-paths`).

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
