//! The programs of a simulated node's driver: `nvidia-smi`, `nvidia-cuda-mps-control`, and `modprobe` and `rmmod` for its modules.
//!
//! They lie in the driver's root like the real ones, find the machine beside themselves, and answer with the texts and exit codes of
//! driver 580, as far as Octavo's programs use them.
//!
//! | differs from NVIDIA's | reason |
//! |---|---|
//! | clients speak lines of text with the MPS daemon | the real protocol is not published |
//! | the MPS daemon has no server process of its own; its own PID stands for it | nothing here runs on a GPU |
//! | clients of several users share a daemon without `-M`, too | only one at a time would wait for the other |
//! | other commands and options are refused | they would do nothing here |

#![forbid(unsafe_code)]

pub mod kmod;
pub mod mps;
pub mod smi;

use std::io::Write as _;
use std::path::Path;

use octavo_fake_gpu::{Clock, FakeGpu};
use octavo_machine::Gpu;

/// Writes to the standard output. A failure has no reader.
fn say(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// Whether a process has a context on a GPU of the machine in `folder`.
fn has_contexts(folder: &Path, gpu: &Gpu) -> bool {
    let file = FakeGpu::existing(folder, gpu.minor, Clock::Host);
    file.is_ok_and(|gpu| !gpu.processes().is_empty())
}
