//! CDI specs: what the container runtime is told about a claim's devices.
//!
//! One file a claim, `k8s.gpu.nvidia.com-claim_<uid>.yaml`, with the names that NVIDIA's driver uses. Its
//! first line is a comment that holds the claim's record: a damaged or lost checkpoint is restored from
//! it, and CDI readers of any version pass over it. The rest is JSON, which every YAML reader takes.

mod driver_files;
mod edits;
mod folder;
mod spec;
#[cfg(test)]
mod tests;

pub use driver_files::DriverFiles;
pub(crate) use driver_files::LIBRARY_FOLDERS;
pub(crate) use edits::{CdiDevice, spec_for};
pub(crate) use folder::{CdiFolder, SpecContent, cdi_id};
pub use spec::{ContainerEdits, DeviceNode, Hook, Mount, Spec, SpecDevice};
