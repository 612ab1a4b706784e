//! A simulated `libcuda.so.1`: the binary interface of CUDA's driver library, without a GPU.
//!
//! Programs that use the driver's interface load it as they load NVIDIA's. Kernels compute
//! nothing but take time; memory is real and holds what is copied into it. All processes of a
//! machine share one simulated gpu per GPU ([`octavo_fake_gpu`]), a file in the machine's
//! folder, and the simulated `libnvidia-ml.so.1` tells of them.
//!
//! The machine is found beside the library (`machine.yaml`, `state.json`); where there is none,
//! as in a container into which the library alone is mounted, in `/run/octavo-simulator`. There
//! only GPUs are seen whose `/dev/nvidiaN` exists.
//!
//! What differs from hardware on purpose:
//!
//! - A context's work is served in the order of its submission, whatever stream it is in; contexts
//!   of several processes share the gpu evenly.
//! - Copies move bytes at the time of the call, which is no later than in any stream's order.
//! - Memory of the device is readable by the host. What was never written reads as zero.
//! - The runtime library (`libcudart`) wants tables of functions that nobody documents
//!   (`cuGetExportTable`) and does not start.
//! - There are no MIG devices.
//!
//! Layout of the code: [`exports`](self) holds the C functions by subject, each a line or two on
//! top of the safe parts below them; [`abi`](self) the structures that callers pass.
//! No environment variable is read but `CUDA_VISIBLE_DEVICES`, which the driver's users know.

#![allow(non_snake_case, reason = "the names of the exported functions are CUDA's")]

mod abi;
mod attributes;
mod code;
mod context;
mod device;
mod execution;
mod exports;
mod fork;
mod library;
mod machine;
mod memory;
mod names;
mod pointers;
mod state;
mod table;
mod thunk;
