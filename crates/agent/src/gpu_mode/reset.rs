//! Changes of MIG mode that need a reset of the GPU, as those of GPUs before Hopper (MIG user guide, "Enable MIG Mode").
//!
//! NVML has no call for a reset, so `nvidia-smi` does it. Nothing may have the GPU open meanwhile, the caller included.

use std::path::Path;
use std::time::Duration;

use octavo_gpu::programs::{self, ProgramError};
use octavo_node::failpoint;

/// Time for one run of `nvidia-smi`. Without persistence mode it initialises all GPUs first, and a reset takes seconds.
const SMI_TIMEOUT: Duration = Duration::from_mins(1);

/// Gives a GPU a MIG mode, by a reset if it takes one. After a failure no mode is pending, so that no later reset changes it.
/// Blocks.
///
/// # Errors
///
/// `nvidia-smi` is missing, hangs, or fails, as for a GPU that a process has open.
pub(crate) fn reset_to_mode(
    driver_root: &Path,
    uuid: &str,
    is_on: bool,
) -> Result<(), ProgramError> {
    let done = change(driver_root, uuid, is_on);
    if done.is_err() {
        let undone = set_mode(driver_root, uuid, !is_on);
        if let Err(error) = undone {
            tracing::warn!(gpu = uuid, %error, "a change of MIG mode waits for a reset");
        }
    }
    done
}

fn change(driver_root: &Path, uuid: &str, is_on: bool) -> Result<(), ProgramError> {
    set_mode(driver_root, uuid, is_on)?;
    failpoint::hit("layout.mode-pending");
    // Some drivers reset an unused GPU by themselves.
    if !is_current(driver_root, uuid, is_on)? {
        smi(driver_root, &["--gpu-reset", "-i", uuid])?;
        failpoint::hit("layout.reset");
    }
    Ok(())
}

fn set_mode(driver_root: &Path, uuid: &str, is_on: bool) -> Result<(), ProgramError> {
    smi(driver_root, &["-i", uuid, "-mig", if is_on { "1" } else { "0" }]).map(drop)
}

fn is_current(driver_root: &Path, uuid: &str, is_on: bool) -> Result<bool, ProgramError> {
    let query = ["-i", uuid, "--query-gpu=mig.mode.current", "--format=csv,noheader"];
    let mode = smi(driver_root, &query)?;
    Ok(mode.trim() == if is_on { "Enabled" } else { "Disabled" })
}

fn smi(driver_root: &Path, args: &[&str]) -> Result<String, ProgramError> {
    let output = programs::run(driver_root, "nvidia-smi", args, SMI_TIMEOUT)?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
