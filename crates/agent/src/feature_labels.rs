//! The labels of GPU feature discovery: what a node's GPUs are, for pods that select nodes by them.
//!
//! ```text
//! GPUs -------------+
//! plugin's settings +--> labels --> the Node object, a NodeFeature object or a file for node feature discovery
//! machine ----------+
//! ```
//!
//! Keys, values and outputs are those of NVIDIA's GPU feature discovery (k8s-device-plugin 0.20). The labels are written when they
//! change, and not otherwise.

mod follow;
mod machine;
mod output;
mod values;
mod vgpu;

pub(crate) use follow::LabelFollower;
pub(crate) use output::LabelWriter;
