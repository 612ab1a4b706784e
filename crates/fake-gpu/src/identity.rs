//! Identities of processes, for other processes to find them.

use std::io;
use std::os::unix::fs::MetadataExt;

/// Identity of a process across namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessIdentity {
    pub(crate) pid: u32,
    pub(crate) namespace: u64,
    pub(crate) started: u64,
}

/// Identity of the calling process. Unreadable fields are zero.
pub(crate) fn current() -> ProcessIdentity {
    ProcessIdentity {
        pid: std::process::id(),
        namespace: std::fs::metadata("/proc/self/ns/pid").map_or(0, |file| file.ino()),
        started: started().unwrap_or(0),
    }
}

/// Identity of a process by its pid in the caller's namespace, without its start.
pub(crate) fn of(pid: u32) -> io::Result<ProcessIdentity> {
    let namespace = std::fs::metadata(format!("/proc/{pid}/ns/pid"))?.ino();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let pid = innermost(&status).ok_or(io::ErrorKind::InvalidData)?;
    Ok(ProcessIdentity { pid, namespace, started: 0 })
}

/// The number of a process or thread in its own namespace, in the text of its `status` file.
pub(crate) fn innermost(status: &str) -> Option<u32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

fn started() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may contain blanks and parentheses; the start time is the 20th word
    // after it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}
