//! A simulated `libcuda.so.1`: the binary interface of CUDA's driver library, without a GPU.
//!
//! Programs of the driver API load it like NVIDIA's library. Kernels take time and compute nothing, but for those
//! of PTX that asks to be computed; memory is real and holds what is copied into it. All processes of a machine share one simulated
//! GPU per device ([`octavo_fake_gpu`]), a file in the machine's folder. The simulated
//! `libnvidia-ml.so.1` reports them.
//!
//! The machine is beside the library (`machine.yaml`, `state.json`). Otherwise, as in a container
//! into which only the library is mounted, it is in `/run/octavo-simulator`. There only GPUs whose
//! `/dev/nvidiaN` the container may open are visible, and `nvidiactl` and `nvidia-uvm` are needed.
//! A folder `dev` beside the library stands for `/dev` in the same way.
//!
//! Deliberate differences from hardware:
//!
//! - A context's work is served in the order of its submission, in whatever stream; several
//!   processes take turns on the GPU.
//! - Copies move bytes at the time of the call, which is no later than in stream order.
//! - The host can read device memory. Memory that was never written reads as zero.
//! - There are no MIG devices.
//! - A checkpoint of a process leaves its memory in the process: only what the GPU counts changes.
//! - Memory of another node needs the simulated IMEX service, and a folder that both nodes see. The design of the lab
//!   lists the details (`docs/design/lab.md`).
//!
//! [`exports`](self) holds the C functions by subject, each a line or two on top of the safe
//! modules below; [`abi`](self) the structures that callers pass. The only environment variable is
//! `CUDA_VISIBLE_DEVICES`, as with the real driver.

#![allow(non_snake_case, reason = "the names of the exported functions are CUDA's")]

mod abi;
mod attributes;
mod checkpoint;
mod code;
mod context;
mod device;
mod execution;
mod export_tables;
mod exports;
mod fork;
mod gate;
mod library;
mod machine;
mod memory;
mod names;
mod pointers;
mod state;
mod table;
mod thunk;
