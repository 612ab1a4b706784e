//! How processes share a GPU: its compute mode and its time slice.

use std::path::Path;
use std::time::Duration;

use octavo_gpu::programs::{self, ProgramError};
use octavo_gpu::{ComputeMode, DriverError};
use octavo_node::failpoint;

use super::GpuTurn;

/// Time for `nvidia-smi`. Without persistence mode it initialises all GPUs first.
const SMI_TIMEOUT: Duration = Duration::from_secs(30);

/// Why a GPU is not shared as it should be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SharingError {
    /// The compute mode.
    #[error("its compute mode cannot be set: {0}")]
    ComputeMode(#[from] DriverError),
    /// The time slice.
    #[error("its time slice cannot be set: {0}")]
    TimeSlice(#[from] ProgramError),
}

impl SharingError {
    /// Whether the driver's root has no `nvidia-smi`, as after the driver was removed.
    pub(crate) fn is_missing_program(&self) -> bool {
        matches!(self, Self::TimeSlice(ProgramError::Missing { .. }))
    }
}

impl GpuTurn {
    /// Lets one process alone have contexts on the GPU, which is the server of an MPS daemon.
    pub(crate) fn make_exclusive(&self, uuid: &str) -> Result<(), SharingError> {
        self.set_compute_mode(uuid, ComputeMode::ExclusiveProcess)?;
        failpoint::hit("sharing.exclusive");
        Ok(())
    }

    /// Gives the GPU's contexts another time slice. All processes may have some then, as it has no effect otherwise.
    pub(crate) fn set_time_slice(&self, uuid: &str, slice: u8) -> Result<(), SharingError> {
        self.set_compute_mode(uuid, ComputeMode::Default)?;
        compute_policy(&self.driver_root, uuid, slice)?;
        failpoint::hit("sharing.time-slice");
        Ok(())
    }

    /// Gives the GPU the driver's default time slice.
    pub(crate) fn reset_time_slice(&self, uuid: &str) -> Result<(), SharingError> {
        if self.is_there(uuid) {
            compute_policy(&self.driver_root, uuid, 0)?;
        }
        Ok(())
    }

    /// Gives the GPU the driver's default compute mode.
    pub(crate) fn reset_compute_mode(&self, uuid: &str) -> Result<(), SharingError> {
        if self.is_there(uuid) {
            self.set_compute_mode(uuid, ComputeMode::Default)?;
        }
        Ok(())
    }

    /// Whether the driver has the GPU. It comes back with the driver's defaults.
    fn is_there(&self, uuid: &str) -> bool {
        let found = self.driver.compute_mode(uuid);
        found.as_ref().err().is_none_or(|error| !error.is_lost())
    }

    fn set_compute_mode(&self, uuid: &str, mode: ComputeMode) -> Result<(), DriverError> {
        if self.driver.compute_mode(uuid)? == mode {
            return Ok(());
        }
        self.driver.set_compute_mode(uuid, mode)
    }
}

/// Sets a time slice. NVML has no call for it.
fn compute_policy(driver_root: &Path, uuid: &str, slice: u8) -> Result<(), ProgramError> {
    let slice = format!("--set-timeslice={slice}");
    let args = ["compute-policy", "-i", uuid, &slice];
    programs::run(driver_root, "nvidia-smi", &args, SMI_TIMEOUT).map(drop)
}
