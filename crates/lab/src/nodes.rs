//! The nodes of a lab: which there are, their hardware, and their objects.

pub(crate) mod driver_libraries;
pub(crate) mod dynamic_mig;
pub(crate) mod hardware;
pub(crate) mod kernel_log;
pub(crate) mod nodeset;
pub(crate) mod owner;
pub(crate) mod provision;
