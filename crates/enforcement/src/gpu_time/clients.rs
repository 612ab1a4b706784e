//! One process with a lease page.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use octavo_arbiter::{Lease, MILLISECOND};
use octavo_guard_abi::lease_page::{CAN_MOVE, TO_HOST, Work};
use octavo_lease_page::SharedPage;

use super::memory::{MoveTicket, ProcessMemory, ProcessMove};

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
    /// Its number.
    pid: u32,
    /// The agent's end.
    pub(super) doorbell: OwnedFd,
    /// Readable when the process has ended.
    pub(super) process: OwnedFd,
    /// Whether it has closed its end of the doorbell.
    pub(super) is_deaf: bool,
    lease: Lease,
    /// Until when launches may begin that it did not count.
    freed_until: Option<u64>,
    /// Launches that had ended when its memory was last looked at.
    completed: u64,
    /// Number of its last request for memory that was looked at.
    seen_request: u32,
    /// The last move of its memory that it was asked for, and the word that asks.
    asked_move: Option<(MoveTicket, u32)>,
}

impl Client {
    pub(super) fn new(
        share: String,
        page: SharedPage,
        doorbell: OwnedFd,
        (pid, process): (u32, OwnedFd),
    ) -> Self {
        let client = Self {
            share,
            page,
            pid,
            doorbell,
            process,
            is_deaf: false,
            lease: Lease::None,
            freed_until: None,
            completed: 0,
            seen_request: 0,
            asked_move: None,
        };
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

    /// The process's memory: what it needs, whether it works, and whether its memory can be moved.
    pub(super) fn memory(&mut self, now: u64) -> ProcessMemory {
        let (work, page) = (self.work(now), self.page.words());
        let has_ended_some = work.completed != self.completed;
        self.completed = work.completed;
        // A later request is not answered with this one.
        self.seen_request = page.asked.load(Ordering::SeqCst);
        ProcessMemory {
            pid: self.pid,
            need: self.needs_memory().then(|| page.needed_bytes.load(Ordering::Relaxed)),
            is_waiting: work.is_waiting,
            is_running: work.is_running,
            // Without a cap nothing is counted.
            is_active: work.is_waiting
                || work.is_running
                || has_ended_some
                || self.lease == Lease::Free,
            unmovable: page.unmovable.load(Ordering::Relaxed),
            can_move: page.can_move.load(Ordering::Relaxed),
            movable: page.movable_bytes.load(Ordering::Relaxed),
            moved: page.moved_bytes.load(Ordering::Relaxed),
        }
    }

    /// Asks the guard for a move of its memory, unless it was asked for this one already. Returns how far it is.
    pub(super) fn ask_move(&mut self, ticket: MoveTicket, to_host: bool) -> ProcessMove {
        let page = self.page.words();
        let last = self.asked_move;
        let word = match last {
            Some((asked, word)) if asked == ticket => word,
            _ => {
                let number = last.map_or(0, |(_, word)| word & !TO_HOST).wrapping_add(2);
                let word = number | if to_host { TO_HOST } else { 0 };
                page.move_asked.store(word, Ordering::Release);
                self.asked_move = Some((ticket, word));
                word
            }
        };
        let is_done = page.move_done.load(Ordering::Acquire) == word;
        ProcessMove {
            pid: self.pid,
            can_move: page.can_move.load(Ordering::Relaxed) == CAN_MOVE,
            is_done,
            status: page.move_status.load(Ordering::Relaxed),
            moved: page.moved_bytes.load(Ordering::Relaxed),
            progress: page.move_progress.load(Ordering::Relaxed),
        }
    }

    /// Whether a thread waits for memory that others have.
    pub(super) fn needs_memory(&self) -> bool {
        let page = self.page.words();
        page.asked.load(Ordering::SeqCst) != page.answered.load(Ordering::SeqCst)
    }

    /// Whether a thread waits, for a lease or for its memory.
    pub(super) fn is_waiting(&self) -> bool {
        self.page.words().waiting.load(Ordering::SeqCst) > 0
    }

    /// Answers the request for memory that was looked at last: the thread tries again.
    pub(super) fn answer(&self) {
        self.page.answer(self.seen_request);
    }

    /// Answers any request for memory.
    pub(super) fn answer_all(&self) {
        self.page.answer(self.page.words().asked.load(Ordering::SeqCst));
    }

    /// Lets calls wait while the process's memory is not on the GPU, or lets them go on.
    pub(super) fn suspend(&self, is_suspended: bool) {
        self.page.suspend(is_suspended);
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
        self.suspend(false);
        self.answer_all();
    }
}
