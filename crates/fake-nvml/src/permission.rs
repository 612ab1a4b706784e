//! Calls that need privileges, as `nvml.h` says ("Requires root user", "Requires privileged user").
//!
//! The real driver asks for the capability `SYS_ADMIN`. The owner of a simulated machine is its administrator, too, so that a
//! user without root can have one; root without the capability, as in a container, is not.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::code::{CallResult, Code};

/// The number of `CAP_SYS_ADMIN` in a set of capabilities.
const SYS_ADMIN: u64 = 1 << 21;

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

fn has_privileges(machine: &Path) -> bool {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    if effective(&status) & SYS_ADMIN != 0 {
        return true;
    }
    // SAFETY: it has no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    user != 0 && fs::metadata(machine).is_ok_and(|machine| machine.uid() == user)
}

/// The effective capabilities in the text of a `status` file.
fn effective(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default()
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

    #[test]
    fn the_effective_set_is_read() {
        assert_eq!(effective("CapPrm:\tffff\nCapEff:\t0000000000200000\n"), SYS_ADMIN);
        assert_eq!(effective("CapPrm:\t0000000000200000\n"), 0);
    }
}
