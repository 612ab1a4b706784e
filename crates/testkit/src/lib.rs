//! What the unit tests of several crates need: API servers in memory, waits with a deadline, and seeded random numbers.
//!
//! - [`FakeApi`] stores objects and serves watches, with faults on request.
//! - [`ScriptedApi`] answers each request with a function of the test, and records it.
//! - [`eventually`] waits for a condition.
//! - [`simulated_nvml`] and [`simulated_cuda`] are the simulated driver's libraries.
//! - [`simulated_imex`] is its service for IMEX, [`simulated_program`] any other program of it.
//! - [`nvidia_checkpoint`] is a file of NVIDIA's DRA driver.
//! - [`Rng`] draws the same numbers for a seed on every machine.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a failure is the test's")]

mod eventually;
mod fake_api;
mod nvidia_checkpoint;
mod rng;
mod scripted_api;
mod simulated;

pub use eventually::eventually;
pub use fake_api::{FakeApi, Rules};
pub use nvidia_checkpoint::nvidia_checkpoint;
pub use rng::Rng;
pub use scripted_api::{Request, ScriptedApi, failure};
pub use simulated::{simulated_cuda, simulated_imex, simulated_nvml, simulated_program};
