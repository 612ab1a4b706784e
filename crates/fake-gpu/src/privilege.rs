//! Privileges of a thread, as the driver asks for them.
//!
//! The real driver asks for the capability `SYS_ADMIN`. The owner of a simulated machine is its administrator, too, so that a
//! user without root can have one; root without the capability, as in a container, is not.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// The number of `CAP_SYS_ADMIN` in a set of capabilities.
const SYS_ADMIN: u64 = 1 << 21;

/// The number of `CAP_SYS_PTRACE` in a set of capabilities.
const SYS_PTRACE: u64 = 1 << 19;

/// Whether the calling thread may control a process, as for `ptrace`: it has the process's user, or the capability
/// `SYS_PTRACE`.
///
/// # Errors
///
/// There is no such process.
pub fn may_control(pid: u32) -> io::Result<bool> {
    let owner = fs::metadata(format!("/proc/{pid}"))?.uid();
    // SAFETY: it has no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    Ok(user == owner || effective(&own_status()) & SYS_PTRACE != 0)
}

/// Whether the calling thread is an administrator of the machine that a file describes.
pub fn has_privileges(machine: &Path) -> bool {
    if effective(&own_status()) & SYS_ADMIN != 0 {
        return true;
    }
    // SAFETY: it has no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    user != 0 && fs::metadata(machine).is_ok_and(|machine| machine.uid() == user)
}

fn own_status() -> String {
    fs::read_to_string("/proc/thread-self/status").unwrap_or_default()
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
    fn the_effective_set_is_read() {
        assert_eq!(effective("CapPrm:\tffff\nCapEff:\t0000000000200000\n"), SYS_ADMIN);
        assert_eq!(effective("CapPrm:\t0000000000200000\n"), 0);
    }
}
