//! Changes of MIG mode that need a reset of the GPU, as those of GPUs before Hopper (MIG user guide, "Enable MIG Mode").
//!
//! NVML has no call for a reset, so `nvidia-smi` does it. Nothing may have the GPU open meanwhile, the caller included.

use std::path::Path;
use std::time::Duration;

use octavo_gpu::programs::{self, ProgramError};
use octavo_node::failpoint;

/// Time for one run of `nvidia-smi`. Without persistence mode it initialises all GPUs first, and a reset takes seconds.
const SMI_TIMEOUT: Duration = Duration::from_mins(1);

/// Why a GPU was not reset into its MIG mode.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResetError {
    /// `nvidia-smi` is missing, hangs, or fails, as for a GPU that a process has open.
    #[error("{0}")]
    Program(#[from] ProgramError),
    /// It did all, and the mode is as before.
    #[error("the reset has succeeded, and the MIG mode is as before")]
    Unchanged,
}

/// Gives a GPU a MIG mode, by a reset if it takes one. After a failed reset no mode is pending, so that no later one changes it.
/// Blocks.
///
/// # Errors
///
/// See [`ResetError`].
pub(crate) fn reset_to_mode(driver_root: &Path, uuid: &str, is_on: bool) -> Result<(), ResetError> {
    set_mode(driver_root, uuid, is_on)?;
    failpoint::hit("layout.mode-pending");
    let done = reset(driver_root, uuid, is_on);
    if done.is_err()
        && let Err(error) = set_mode(driver_root, uuid, !is_on)
    {
        tracing::warn!(gpu = uuid, %error, "a change of MIG mode waits for a reset");
    }
    done
}

fn reset(driver_root: &Path, uuid: &str, is_on: bool) -> Result<(), ResetError> {
    // Some drivers reset an unused GPU by themselves.
    if is_current(driver_root, uuid, is_on)? {
        return Ok(());
    }
    smi(driver_root, &["--gpu-reset", "-i", uuid])?;
    failpoint::hit("layout.reset");
    if is_current(driver_root, uuid, is_on)? { Ok(()) } else { Err(ResetError::Unchanged) }
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
