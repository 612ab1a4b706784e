//! `octavo probe` reports the GPUs of a process, whether memory beyond its share is refused on
//! every allocation path, and the cost of calls.
//!
//! It is an ordinary program of the CUDA driver API. Like frameworks, it opens `libcuda.so.1` and
//! `libnvidia-ml.so.1` by name. It tries every allocation path of the API. It does not know how a
//! limit is enforced, so it measures any enforcement: Octavo's guard, the driver's own limits, a
//! whole GPU.
//!
//! The driver's functions are in [`driver`](self), with the types of NVIDIA's `cuda.h`; everything
//! else is safe code.

mod args;
mod busy;
mod driver;
mod environment;
mod fabric;
mod keep;
mod mpi;
mod nvml;
mod output;
mod paths;
mod round_trip;
mod run;
mod timing;
mod verify;

pub use args::{ProbeArgs, ProbeCommand};
pub use run::{ProbeResult, run};
pub use verify::VerifyArgs;
