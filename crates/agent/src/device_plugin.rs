//! A node's GPUs as counted resources, such as `nvidia.com/gpu: 1`: the kubelet's device plugin contract, as NVIDIA's device plugin
//! serves it (k8s-device-plugin 0.20).
//!
//! ```text
//! GPUs, health ---+
//! config, label --+--> Offer: resources and their devices --> CDI specs --> ListAndWatch, Allocate of each resource
//! node's mode ----+
//! ```
//!
//! The kubelet decides which device a container gets, and records it. The plugin keeps no record: `PodResources` is what the
//! kubelet says about its own.

mod allocation;
mod cdi_specs;
mod config_follower;
mod config_source;
mod mps;
mod mps_owner;
mod offer;
mod pod_resources;
mod preference;
mod resources;
mod server;
mod service;

pub(crate) use allocation::CDI_VENDOR;
pub(crate) use config_follower::ConfigFollower;
pub(crate) use mps::has_daemons;
#[cfg(test)]
pub(crate) use mps_owner::WantedDaemons;
pub(crate) use mps_owner::{MpsOwner, PluginDaemons};
pub(crate) use offer::{Follower, Offer, PluginInput};
pub(crate) use pod_resources::{PluginState, plugin_state};
pub(crate) use resources::{GPU_RESOURCE, mig_devices, mig_resource};
pub(crate) use server::serve;
pub(crate) use service::AllocationCounter;
