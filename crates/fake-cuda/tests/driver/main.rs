//! The built library, used like NVIDIA's: loaded, and called through its symbols.
//!
//! Each test has its own machine with a copy of the library, so that tests are independent.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::multiple_unsafe_ops_per_block,
    clippy::undocumented_unsafe_blocks,
    reason = "tests call C functions with pointers to their own locals and may fail loudly"
)]

mod checkpoints;
mod computed;
mod contexts;
mod copies;
mod fabric;
mod faults;
mod graphs;
mod libraries;
mod memory;
mod names;
mod node;
mod pools;
mod processes;
mod rack;
mod streams;
mod vmm;
