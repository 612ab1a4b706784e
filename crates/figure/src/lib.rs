//! Measured figures, their goals, and the report of a benchmark.

#![forbid(unsafe_code)]

pub use figure::{Figure, Goal, Report, percentile};

pub mod environment;
mod figure;
