//! Calls that need privileges, as `nvml.h` says ("Requires root user", "Requires privileged user").

use std::path::Path;

use octavo_fake_gpu::privilege::has_privileges;

use crate::code::{CallResult, Code};

/// Calls that need it, in alphabetical order.
const PRIVILEGED: [&str; 18] = [
    "nvmlComputeInstanceDestroy",
    "nvmlDeviceCreateGpuInstance",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlDeviceGetGpuInstanceById",
    "nvmlDeviceGetGpuInstancePossiblePlacements",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceGetGpuInstanceRemainingCapacity",
    "nvmlDeviceGetGpuInstances",
    "nvmlDeviceSetComputeMode",
    "nvmlDeviceSetMigMode",
    "nvmlDeviceSetPersistenceMode",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceCreateComputeInstanceWithPlacement",
    "nvmlGpuInstanceDestroy",
    "nvmlGpuInstanceGetComputeInstanceById",
    "nvmlGpuInstanceGetComputeInstancePossiblePlacements",
    "nvmlGpuInstanceGetComputeInstanceRemainingCapacity",
    "nvmlGpuInstanceGetComputeInstances",
];

/// Fails a privileged call of a thread without privileges. `machine` is the file that describes the machine.
pub(crate) fn check(call: &str, machine: &Path) -> CallResult {
    if PRIVILEGED.binary_search(&call).is_err() || has_privileges(machine) {
        Ok(())
    } else {
        Err(Code::NO_PERMISSION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_so_that_a_search_finds_each() {
        assert!(PRIVILEGED.is_sorted());
        for call in PRIVILEGED {
            assert!(PRIVILEGED.binary_search(&call).is_ok(), "{call}");
        }
    }
}
