//! The cluster as data: nodes and their devices, topology, shapes, gangs and running workloads.

pub mod cluster;
pub mod devices;
pub mod gang;
pub mod gpu;
pub mod node;
pub mod placement;
pub mod resources;
pub mod shape;
pub mod topology;
pub mod transaction;
pub mod workload;
