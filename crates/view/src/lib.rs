//! Cluster reports for people: who holds which GPU, the use of shares, and why a pod waits.
//!
//! | module | purpose |
//! |---|---|
//! | [`fetch`] | reads a [`snapshot::ClusterSnapshot`] from the API server |
//! | [`top`], [`shares`], [`explain`] | pure functions from a snapshot to a report |
//! | [`doctor`] | what keeps GPUs from use, with remedies; probe pods |
//! | [`compute_domain`] | what a `ComputeDomain` and its pods wait for |
//! | [`health`] | which GPUs are not well, and the word of a person about them |
//! | [`driver`] | lets agents release the driver, and waits for them |
//! | [`shares::read`] | adds the figures of the agents |
//! | [`scheduler`] | adds the explanation of Octavo's scheduler |
//! | [`pod_trouble`] | why the containers of a pod do not run |
//! | [`output`] and the renderers | write reports |
//! | [`command`] | the commands of the `octavo` binary |

#![forbid(unsafe_code)]

pub mod command;
pub mod compute_domain;
pub mod connect;
pub mod doctor;
pub mod driver;
pub mod error;
pub mod explain;
pub mod fetch;
pub mod health;
pub mod output;
pub mod pod_trouble;
pub mod scheduler;
pub mod shares;
pub mod snapshot;
pub mod top;
pub mod usage;

mod address;
mod age;
mod controller;
mod device;

#[cfg(test)]
mod fixtures;
mod port_forward;

pub use command::{
    DoctorArgs, DoctorStatus, DriverArgs, ExplainArgs, ExplainStatus, HealthArgs, HealthStatus,
    TopArgs, run_doctor, run_driver, run_explain, run_health, run_top,
};
pub use error::ViewError;
pub use scheduler::Scheduler;
