//! CDI specs of GPUs: their types, device nodes by number, and the files of the driver.
//!
//! CDI is the Container Device Interface: a file that tells a container runtime which device nodes,
//! mounts and hooks a container with a device gets.

#![forbid(unsafe_code)]

mod driver_files;
mod extra_nodes;
mod majors;
mod spec;
pub mod sysfs;

pub use driver_files::DriverFiles;
pub use extra_nodes::ExtraNodes;
pub use majors::{ALL_MODE, Majors, MissingModule};
pub use spec::{ContainerEdits, DeviceNode, Hook, KIND, Mount, Spec, SpecDevice, VERSION};
