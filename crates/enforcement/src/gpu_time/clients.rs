//! One process with a lease page.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use octavo_arbiter::{Lease, MILLISECOND};
use octavo_guard_abi::lease_page::Work;
use octavo_lease_page::SharedPage;

/// How long a page says that a lease is needed, after it was last looked at, in milliseconds. A thread that waits opens it
/// itself then, if the agent is gone.
const OPENS_AFTER_MS: u64 = 2_000;

/// How long launches may begin that the process did not count, after its free lease has ended, in nanoseconds.
const UNCOUNTED: u64 = MILLISECOND;

/// A process, and what it shares with the agent.
#[derive(Debug)]
pub(super) struct Client {
    /// Name of its share.
    pub(super) share: String,
    page: SharedPage,
    /// The agent's end.
    pub(super) doorbell: OwnedFd,
    /// Readable when the process has ended.
    pub(super) process: OwnedFd,
    /// Whether it has closed its end of the doorbell.
    pub(super) is_deaf: bool,
    lease: Lease,
    /// Until when launches may begin that it did not count.
    freed_until: Option<u64>,
}

impl Client {
    pub(super) fn new(
        share: String,
        page: SharedPage,
        doorbell: OwnedFd,
        process: OwnedFd,
    ) -> Self {
        let (is_deaf, lease) = (false, Lease::None);
        let client = Self { share, page, doorbell, process, is_deaf, lease, freed_until: None };
        client.renew();
        client
    }

    /// What the process does, at a time.
    pub(super) fn work(&self, now: u64) -> Work {
        let mut work = self.page.words().work();
        work.is_running |= self.freed_until.is_some_and(|until| now < until);
        work
    }

    /// Sets the lease, at a time.
    pub(super) fn set(&mut self, lease: Lease, now: u64) {
        self.renew();
        if lease == self.lease {
            return;
        }
        self.freed_until = (self.lease == Lease::Free).then(|| now.saturating_add(UNCOUNTED));
        self.lease = lease;
        self.page.set(lease);
    }

    /// Lets the process launch whenever it wants.
    pub(super) fn release(&mut self) {
        self.lease = Lease::Free;
        self.page.set(Lease::Free);
    }

    fn renew(&self) {
        let opens_at = &self.page.words().opens_at_ms;
        opens_at.store(monotonic_ms().saturating_add(OPENS_AFTER_MS), Ordering::Relaxed);
    }
}

/// Milliseconds of the monotonic clock, which is the same in all containers of a node.
fn monotonic_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1_000 + now.tv_nsec / 1_000_000).unwrap_or(0)
}

impl Drop for Client {
    /// However the thread ends: no process waits for it.
    fn drop(&mut self) {
        self.release();
    }
}
