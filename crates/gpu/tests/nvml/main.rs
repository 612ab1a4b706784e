//! The NVML backend with the simulated driver, loaded as programs load NVIDIA's.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at what it did not expect")]

mod compute_mode;
mod events;
mod faults;
mod inventory;
mod library;
mod mig;
mod node;
mod old_driver;
mod telemetry;
