//! Identity of this process, for other processes to find it.

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

fn started() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may contain blanks and parentheses; the start time is the 20th word
    // after it.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}
