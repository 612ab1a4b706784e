//! CDI specs: the description of a claim's devices for the container runtime.
//!
//! Each claim has one file, `k8s.gpu.nvidia.com-claim_<uid>.yaml`. Its device names are those of NVIDIA's driver. The
//! first line is a comment with the claim's record, from which a damaged or lost checkpoint is restored. CDI readers
//! skip the comment. The rest is JSON, which every YAML reader accepts.

mod edits;
mod folder;
#[cfg(test)]
mod tests;

pub(crate) use edits::{CdiDevice, common_edits, drm_edits, spec_for};
pub(crate) use folder::{CdiFolder, SpecContent, cdi_id, device_name, spec_text};
