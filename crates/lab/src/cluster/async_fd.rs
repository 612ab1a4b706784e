//! File descriptors that the runtime watches.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::unix::AsyncFd;

/// Registers a descriptor with the runtime, so that a task can wait until it is readable.
#[expect(
    deprecated,
    reason = "the successor is unsafe because a type might close its descriptor early; OwnedFd never does"
)]
pub(crate) fn register(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(fd)
}
