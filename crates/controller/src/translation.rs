//! Pods of HAMi and KAI Scheduler at their admission, without I/O: what a webhook answers, the GPU models of the cluster, the
//! webhook's certificates, and when a claim template may go.
//!
//! The translation itself is [`octavo_migration::translate`], as in `octavo migrate manifests`.

pub(crate) mod authority;
pub(crate) mod models;
mod patch;
pub(crate) mod review;
pub(crate) mod usage;
