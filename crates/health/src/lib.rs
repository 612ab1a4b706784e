//! Decides about the health of GPUs, so that what is simulated is what runs.
//!
//! No clock, no I/O, no randomness: time is a parameter, numbers are integers, collections are ordered. Equal input gives
//! equal output on every machine.
//!
//! ```text
//! unit      devices and the parts around them
//! signal    what is observed, what became of remedies, what an operator decided
//! xid       what an XID says about the device
//! verdict   what an observation calls for
//! remedy    what brings a device back, mildest first
//! reason    why a device is in its state
//! state     the states of a device, and one step between them
//! risk      how likely a unit fails, from its history
//! moves     when it pays to move a gang
//! spares    how many spare nodes a domain needs
//! budget    how much may be disturbed at once, and when remedies stop
//! policy    the settings of all of it
//! decide    signals, states and policy of a domain -> what to do
//! fixed     exponential, logarithm and rounding in integers
//! ```
//!
//! Points in time are seconds since an origin of the caller's choice, durations are seconds. Rates, probabilities and
//! blame are billionths.

#![forbid(unsafe_code)]

pub mod budget;
pub mod decide;
mod fixed;
pub mod moves;
pub mod policy;
pub mod reason;
pub mod remedy;
pub mod risk;
pub mod signal;
pub mod spares;
pub mod state;
pub mod unit;
pub mod verdict;
pub mod xid;

/// One, in billionths.
pub const ONE: u64 = 1_000_000_000;

/// An hour, in seconds.
pub const HOUR: u64 = 3_600;

/// A day, in seconds.
pub const DAY: u64 = 24 * HOUR;
