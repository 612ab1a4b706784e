//! How plans are compared: objectives, fragmentation and packing.

pub mod fragmentation;
pub mod objective;
pub mod packing;
