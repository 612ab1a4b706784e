//! Test helpers that query Kubernetes' own code about random cases.
//!
//! An [`Oracle`] is a Go program beside the test; it answers one line of JSON with another. Cases
//! are random and identified by their seed (`octavo_testkit::Rng`), so a failing case can be repeated alone
//! ([`seeds::chosen`]). Each test defines its own questions and answers.

#![forbid(unsafe_code)]

mod process;
pub mod seeds;

pub use process::{Oracle, cdi_reader, program};
