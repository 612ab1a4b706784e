//! The programs of a simulated node's driver: `nvidia-smi` and `nvidia-cuda-mps-control`.
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

pub mod mps;
pub mod smi;

use std::io::Write as _;

/// Writes to the standard output. A failure has no reader.
fn say(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}
