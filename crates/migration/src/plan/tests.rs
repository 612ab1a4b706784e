//! Clusters as the API server describes them, and the plans for them.
//!
//! Objects follow `assets` and `manifests` of gpu-operator a22dbf671, the charts of k8s-device-plugin 0.20 and of
//! dra-driver-nvidia-gpu 95932046, and the charts of HAMi 2.10 and KAI Scheduler 0.13.

#![expect(clippy::needless_pass_by_value, reason = "fixtures write their values in place")]

mod claims;
mod configs;
mod device_list;
mod dra;
mod fixtures;
mod operator;
mod properties;
mod schedulers;
mod webhook;
