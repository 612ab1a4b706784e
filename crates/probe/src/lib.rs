//! `octavo probe`: what a process sees of its GPUs, whether memory beyond its share is refused on every path
//! by which a program can ask for it, and what a call costs.
//!
//! It is an ordinary program of the CUDA driver API: it opens `libcuda.so.1` and `libnvidia-ml.so.1` by
//! name, as frameworks do, and asks for memory in each path that the API has. It knows nothing of how a
//! share is held, so it measures any wall: Octavo's guard, the driver's own limits, a whole GPU.
//!
//! The calls of the driver are in [`driver`](self), each with the types of NVIDIA's `cuda.h`; all else is
//! safe code on top.

mod args;
mod driver;
mod environment;
mod nvml;
mod output;
mod paths;
mod run;
mod timing;

pub use args::ProbeArgs;
pub use run::{ProbeResult, run};
