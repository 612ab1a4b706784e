//! Runs of `octavo sim replay` as one HTML page with curves, figures and inputs.
//!
//! The page is self-contained: no script, font or image is loaded. The curves are SVG, drawn here.

pub mod args;
pub(crate) mod chart;
pub(crate) mod curves;
pub(crate) mod escape;
mod input;
pub(crate) mod page;
mod scale;
mod tables;
#[cfg(test)]
mod tests;

pub use input::{Curve, Input, InputError, Sample};
pub use page::page;
