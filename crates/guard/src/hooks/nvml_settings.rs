//! Settings of NVML. One tenant must not change a shared GPU, whatever the container's permissions:
//! power, clocks and MIG mode affect the other tenants.
//!
//! The driver decides for a device without a share. Parameters are words that are passed through.

use crate::cuda::Opaque;
use crate::nvml::{self, Status};

hooks! {
    NVML, Status;

    /// Persistence mode.
    fn nvmlDeviceSetPersistenceMode(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetPersistenceMode(device, a) }
    }

    /// Compute mode.
    fn nvmlDeviceSetComputeMode(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetComputeMode(device, a) }
    }

    /// ECC mode.
    fn nvmlDeviceSetEccMode(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetEccMode(device, a) }
    }

    /// ECC error counts.
    fn nvmlDeviceClearEccErrorCounts(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceClearEccErrorCounts(device, a) }
    }

    /// Driver model.
    fn nvmlDeviceSetDriverModel(device: Opaque, a: Opaque, b: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetDriverModel(device, a, b) }
    }

    /// Graphics clocks.
    fn nvmlDeviceSetGpuLockedClocks(device: Opaque, a: Opaque, b: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetGpuLockedClocks(device, a, b) }
    }
    /// As above.
    fn nvmlDeviceResetGpuLockedClocks(device: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceResetGpuLockedClocks(device) }
    }

    /// Memory clocks.
    fn nvmlDeviceSetMemoryLockedClocks(device: Opaque, a: Opaque, b: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetMemoryLockedClocks(device, a, b) }
    }
    /// As above.
    fn nvmlDeviceResetMemoryLockedClocks(device: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceResetMemoryLockedClocks(device) }
    }

    /// Application clocks.
    fn nvmlDeviceSetApplicationsClocks(device: Opaque, a: Opaque, b: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetApplicationsClocks(device, a, b) }
    }
    /// As above.
    fn nvmlDeviceResetApplicationsClocks(device: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceResetApplicationsClocks(device) }
    }

    /// Automatic boost.
    fn nvmlDeviceSetAutoBoostedClocksEnabled(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetAutoBoostedClocksEnabled(device, a) }
    }
    /// As above.
    fn nvmlDeviceSetDefaultAutoBoostedClocksEnabled(device: Opaque, a: Opaque, b: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetDefaultAutoBoostedClocksEnabled(device, a, b) }
    }

    /// Clock offsets.
    fn nvmlDeviceSetClockOffsets(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetClockOffsets(device, a) }
    }
    /// As above.
    fn nvmlDeviceSetGpcClkVfOffset(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetGpcClkVfOffset(device, a) }
    }
    /// As above.
    fn nvmlDeviceSetMemClkVfOffset(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetMemClkVfOffset(device, a) }
    }

    /// Fans.
    fn nvmlDeviceSetFanSpeed_v2(device: Opaque, a: Opaque, b: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetFanSpeed_v2(device, a, b) }
    }
    /// As above.
    fn nvmlDeviceSetDefaultFanSpeed_v2(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetDefaultFanSpeed_v2(device, a) }
    }
    /// As above.
    fn nvmlDeviceSetFanControlPolicy(device: Opaque, a: Opaque, b: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetFanControlPolicy(device, a, b) }
    }

    /// Temperature thresholds.
    fn nvmlDeviceSetTemperatureThreshold(device: Opaque, a: Opaque, b: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetTemperatureThreshold(device, a, b) }
    }

    /// Power.
    fn nvmlDeviceSetPowerManagementLimit(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetPowerManagementLimit(device, a) }
    }
    /// As above.
    fn nvmlDeviceSetPowerManagementLimit_v2(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetPowerManagementLimit_v2(device, a) }
    }
    /// As above.
    fn nvmlDeviceSetPowerMizerMode_v1(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetPowerMizerMode_v1(device, a) }
    }
    /// As above.
    fn nvmlDevicePowerSmoothingActivatePresetProfile(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDevicePowerSmoothingActivatePresetProfile(device, a) }
    }
    /// As above.
    fn nvmlDevicePowerSmoothingUpdatePresetProfileParam(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDevicePowerSmoothingUpdatePresetProfileParam(device, a) }
    }
    /// As above.
    fn nvmlDevicePowerSmoothingSetState(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDevicePowerSmoothingSetState(device, a) }
    }
    /// As above.
    fn nvmlDeviceWorkloadPowerProfileSetRequestedProfiles(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceWorkloadPowerProfileSetRequestedProfiles(device, a) }
    }
    /// As above.
    fn nvmlDeviceWorkloadPowerProfileClearRequestedProfiles(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceWorkloadPowerProfileClearRequestedProfiles(device, a) }
    }
    /// As above.
    fn nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1(device, a) }
    }

    /// GPU operation mode.
    fn nvmlDeviceSetGpuOperationMode(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetGpuOperationMode(device, a) }
    }

    /// API restrictions.
    fn nvmlDeviceSetAPIRestriction(device: Opaque, a: Opaque, b: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetAPIRestriction(device, a, b) }
    }

    /// Process accounting.
    fn nvmlDeviceSetAccountingMode(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetAccountingMode(device, a) }
    }
    /// As above.
    fn nvmlDeviceClearAccountingPids(device: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceClearAccountingPids(device) }
    }

    /// Memory limits of cgroups.
    fn nvmlDeviceSetMemoryLimits_v1(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetMemoryLimits_v1(device, a) }
    }

    /// MIG instances.
    fn nvmlDeviceSetMigMode(device: Opaque, a: Opaque, b: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetMigMode(device, a, b) }
    }
    /// As above.
    fn nvmlDeviceCreateGpuInstance(device: Opaque, a: Opaque, b: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceCreateGpuInstance(device, a, b) }
    }
    /// As above.
    fn nvmlDeviceCreateGpuInstanceWithPlacement(device: Opaque, a: Opaque, b: Opaque, c: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceCreateGpuInstanceWithPlacement(device, a, b, c) }
    }

    /// Virtualisation.
    fn nvmlDeviceSetVirtualizationMode(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetVirtualizationMode(device, a) }
    }
    /// As above.
    fn nvmlDeviceSetVgpuSchedulerState(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetVgpuSchedulerState(device, a) }
    }
    /// As above.
    fn nvmlDeviceSetVgpuCapabilities(device: Opaque, a: Opaque, b: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetVgpuCapabilities(device, a, b) }
    }
    /// As above.
    fn nvmlDeviceSetVgpuHeterogeneousMode(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetVgpuHeterogeneousMode(device, a) }
    }

    /// `NVLink`.
    fn nvmlDeviceSetNvLinkUtilizationControl(device: Opaque, a: Opaque, b: Opaque, c: Opaque, d: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetNvLinkUtilizationControl(device, a, b, c, d) }
    }
    /// As above.
    fn nvmlDeviceFreezeNvLinkUtilizationCounter(device: Opaque, a: Opaque, b: Opaque, c: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceFreezeNvLinkUtilizationCounter(device, a, b, c) }
    }
    /// As above.
    fn nvmlDeviceResetNvLinkUtilizationCounter(device: Opaque, a: Opaque, b: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceResetNvLinkUtilizationCounter(device, a, b) }
    }
    /// As above.
    fn nvmlDeviceResetNvLinkErrorCounters(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceResetNvLinkErrorCounters(device, a) }
    }
    /// As above.
    fn nvmlDeviceSetNvLinkDeviceLowPowerThreshold(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetNvLinkDeviceLowPowerThreshold(device, a) }
    }
    /// As above.
    fn nvmlDeviceSetNvlinkBwMode(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetNvlinkBwMode(device, a) }
    }

    /// Confidential computing.
    fn nvmlDeviceSetConfComputeUnprotectedMemSize(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetConfComputeUnprotectedMemSize(device, a) }
    }
    /// As above.
    fn nvmlDeviceSetDramEncryptionMode(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetDramEncryptionMode(device, a) }
    }

    /// Host name.
    fn nvmlDeviceSetHostname_v1(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetHostname_v1(device, a) }
    }

    /// Data that the driver shares with user space (RUSD).
    fn nvmlDeviceSetRusdSettings_v1(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceSetRusdSettings_v1(device, a) }
    }

    /// Registers.
    fn nvmlDeviceReadWritePRM_v1(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlDeviceReadWritePRM_v1(device, a) }
    }

    /// GPM metrics.
    fn nvmlGpmSetStreamingEnabled(device: Opaque, a: Opaque) -> Status {
        if is_shared(device) { Status::NO_PERMISSION } else { real::nvmlGpmSetStreamingEnabled(device, a) }
    }

    /// MIG instances.
    fn nvmlGpuInstanceDestroy(a: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlGpuInstanceDestroy(a) }
    }
    /// As above.
    fn nvmlGpuInstanceCreateComputeInstance(a: Opaque, b: Opaque, c: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlGpuInstanceCreateComputeInstance(a, b, c) }
    }
    /// As above.
    fn nvmlGpuInstanceCreateComputeInstanceWithPlacement(a: Opaque, b: Opaque, c: Opaque, d: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlGpuInstanceCreateComputeInstanceWithPlacement(a, b, c, d) }
    }
    /// As above.
    fn nvmlComputeInstanceDestroy(a: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlComputeInstanceDestroy(a) }
    }

    /// Virtualisation.
    fn nvmlGpuInstanceSetVgpuHeterogeneousMode(a: Opaque, b: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlGpuInstanceSetVgpuHeterogeneousMode(a, b) }
    }
    /// As above.
    fn nvmlGpuInstanceSetVgpuSchedulerState(a: Opaque, b: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlGpuInstanceSetVgpuSchedulerState(a, b) }
    }
    /// As above.
    fn nvmlVgpuInstanceSetEncoderCapacity(a: Opaque, b: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlVgpuInstanceSetEncoderCapacity(a, b) }
    }
    /// As above.
    fn nvmlVgpuInstanceClearAccountingPids(a: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlVgpuInstanceClearAccountingPids(a) }
    }
    /// As above.
    fn nvmlSetVgpuVersion(a: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlSetVgpuVersion(a) }
    }

    /// Drain state and removal of a GPU.
    fn nvmlDeviceModifyDrainState(a: Opaque, b: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlDeviceModifyDrainState(a, b) }
    }
    /// As above.
    fn nvmlDeviceRemoveGpu(a: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlDeviceRemoveGpu(a) }
    }
    /// As above.
    fn nvmlDeviceRemoveGpu_v2(a: Opaque, b: Opaque, c: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlDeviceRemoveGpu_v2(a, b, c) }
    }
    /// As above.
    fn nvmlDeviceDiscoverGpus(a: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlDeviceDiscoverGpus(a) }
    }

    /// `NVLink`.
    fn nvmlSystemSetNvlinkBwMode(a: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlSystemSetNvlinkBwMode(a) }
    }

    /// Confidential computing.
    fn nvmlSystemSetConfComputeGpusReadyState(a: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlSystemSetConfComputeGpusReadyState(a) }
    }
    /// As above.
    fn nvmlSystemSetConfComputeKeyRotationThresholdInfo(a: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlSystemSetConfComputeKeyRotationThresholdInfo(a) }
    }

    /// LEDs.
    fn nvmlUnitSetLedState(a: Opaque, b: Opaque) -> Status {
        if nvml::is_sharing() { Status::NO_PERMISSION } else { real::nvmlUnitSetLedState(a, b) }
    }
}

/// Whether a device is shared; assumed so if it cannot be determined.
fn is_shared(device: Opaque) -> bool {
    nvml::shares_of(device).map_or(true, |(_, share_indices)| !share_indices.is_empty())
}
