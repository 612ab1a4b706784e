//! Runs of `octavo sim replay` as one HTML page: curves, figures, and what they were made from.
//!
//! The page needs nothing but itself: no script, no font, no picture from elsewhere. Curves are
//! drawn here, as SVG.

pub mod args;
mod chart;
mod curves;
mod escape;
mod input;
mod page;
mod scale;
mod tables;
#[cfg(test)]
mod tests;

pub use input::{Curve, Input, InputError, Sample};
pub use page::page;
