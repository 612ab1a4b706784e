//! What the unit tests of several crates need: API servers in memory, waits with a deadline, and seeded random numbers.
//!
//! - [`FakeApi`] stores objects and serves watches, with faults on request.
//! - [`ScriptedApi`] answers each request with a function of the test, and records it.
//! - [`eventually`] waits for a condition.
//! - [`Rng`] draws the same numbers for a seed on every machine.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failure is the test's")]

mod eventually;
mod fake_api;
mod rng;
mod scripted_api;

pub use eventually::eventually;
pub use fake_api::{FakeApi, Rules};
pub use rng::Rng;
pub use scripted_api::{Request, ScriptedApi, failure};
