//! Experiments on placement, without a cluster. They compare policies with published results and
//! orders of devices with one another. Users never run them; `cargo xtask bench` does.

#![forbid(unsafe_code)]

pub mod mig_order;
pub mod packing;
pub mod steady;
