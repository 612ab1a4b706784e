//! Memory that other shares have now: how a thread asks the agent for it, and why a process's memory cannot be moved.

use core::sync::atomic::Ordering;

use super::{Leases, ShareLeases};
use crate::platform::sync::Mutex;
use crate::platform::sys::futex::{self, WaitScope};
use crate::platform::sys::task;

/// Longest sleep of a thread that waits for an answer before it looks at the page again, in milliseconds.
const MAX_SLEEP_MS: u32 = 20;

/// How long a thread waits for the agent at least: for the page of a process that has just begun, and for an agent of which the page
/// says that it is gone.
const MIN_WAIT_MS: u64 = 1_000;

/// Held by the thread that asks: one of a process at a time.
pub(super) type Asker = Mutex<()>;

impl ShareLeases {
    /// Asks the agent for memory of the share that others have now, and waits for the answer: until memory was moved to the host,
    /// or the agent is gone. The caller tries its allocation again.
    #[cold]
    pub(crate) fn ask_for_memory(&self, bytes: u64) {
        let began = task::milliseconds();
        while !self.has_page() && task::milliseconds().saturating_sub(began) < MIN_WAIT_MS {
            futex::sleep_microseconds(u64::from(MAX_SLEEP_MS) * 1_000);
        }
        if let Some(leases) = self.get() {
            leases.ask(bytes);
        }
    }

    /// Shows the agent why the process's memory cannot be moved.
    pub(crate) fn show_unmovable(&self, flags: u32) {
        if let Some(page) = self.get().and_then(Leases::page)
            && page.unmovable.load(Ordering::Relaxed) != flags
        {
            page.unmovable.store(flags, Ordering::Relaxed);
        }
    }
}

impl Leases {
    fn ask(&self, bytes: u64) {
        let _asker = self.asker.lock();
        let Some(page) = self.page() else { return };
        page.needed_bytes.store(bytes, Ordering::Relaxed);
        let number = page.asked.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
        self.doorbell.ring();
        let since = task::milliseconds();
        loop {
            let answered = page.answered.load(Ordering::SeqCst);
            let is_other_page = self.page().is_none_or(|now| !core::ptr::eq(now, page));
            if answered == number || is_other_page {
                return;
            }
            let now = task::milliseconds();
            let is_gone = now >= page.opens_at_ms.load(Ordering::Relaxed);
            if is_gone && now.saturating_sub(since) >= MIN_WAIT_MS {
                return;
            }
            futex::wait(&page.answered, answered, MAX_SLEEP_MS, WaitScope::Machine);
        }
    }
}
