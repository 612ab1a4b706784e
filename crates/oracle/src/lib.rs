//! For tests: asks Kubernetes' own code, for cases that a seed determines.
//!
//! An [`Oracle`] is a Go program beside the test, which answers a line of JSON with a line of JSON.
//! Cases are made at random and named by their seed ([`Rng`]), so a case that differs can be had
//! again alone ([`seeds::chosen`]). What is asked and what the answers mean is each test's own.

#![forbid(unsafe_code)]

mod process;
mod rng;
pub mod seeds;

pub use process::{Oracle, program};
pub use rng::Rng;
