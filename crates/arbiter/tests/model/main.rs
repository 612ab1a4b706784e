//! Shares of a GPU's time, in virtual time on a model of a GPU. It is a model, not hardware.

#![allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "parts in percent"
)]

mod beside;
mod decide;
mod faults;
mod gangs;
mod latency;
mod machine;
mod node;
mod shares;
