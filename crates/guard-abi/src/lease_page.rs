//! The lease page: memory that the agent shares with one process, for one share.
//!
//! A guard asks for it in its first frame ([`crate::message::LEASE_PAGE`]). The agent answers with two descriptors: the
//! page, and one end of a pair of sockets, the doorbell. An agent without leases never answers, and a guard that knows no
//! leases never asks. Then only the gate of the share applies.
//!
//! | written by | fields |
//! |---|---|
//! | the agent | [`LeasePage::lease`], [`LeasePage::answered`], [`LeasePage::opens_at_ms`], [`LeasePage::suspended`], |
//! | | [`LeasePage::move_asked`] |
//! | the guard | [`LeasePage::waiting`], [`LeasePage::inside`], [`LeasePage::asked`], [`LeasePage::needed_bytes`], |
//! | | [`LeasePage::unmovable`], [`LeasePage::move_done`] and the words after it, [`StreamMarks::marked`] |
//! | the GPU | [`StreamMarks::completed`] |
//!
//! The page divides time among tenants that keep to it. A container may write anything into its page and gains at most
//! time by it, never memory: the agent gives memory by the share's limits, which no container can write.
//!
//! A *mark* is a write that the guard appends to a stream. The GPU executes it once all earlier work of the stream has
//! ended.

use core::mem::size_of;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Size of the page in bytes.
pub const SIZE: usize = 4096;

/// Streams of a process that have marks at the same time.
pub const STREAMS: usize = 64;

/// The page. Zero bytes are a page without a lease.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct LeasePage {
    /// A [`LeaseWord`]. Waiting threads wait for it to change (`FUTEX_WAIT`), and the agent wakes them.
    pub lease: AtomicU32,
    /// The last [`LeasePage::asked`] that the agent has answered. Threads that need memory wait for it to change.
    pub answered: AtomicU32,
    /// From this time on no lease is needed, in milliseconds of the monotonic clock. The agent moves it on while it
    /// works; so an agent that is gone stops no one.
    pub opens_at_ms: AtomicU64,
    /// Not 0 while the process's memory is swapped out, or about to be. Then calls that touch the memory wait, as launches
    /// without a lease do. Their threads wait for it to change.
    pub suspended: AtomicU32,
    /// The last move of the process's memory that the agent asked for, by the guard: a number, and [`TO_HOST`] or not. 0 if none.
    pub move_asked: AtomicU32,
    _agent: [AtomicU64; 5],
    /// Threads that wait for a lease, or for room under its cap.
    pub waiting: AtomicU32,
    /// Threads that are in a launch: they had a lease when they entered.
    pub inside: AtomicU32,
    /// Number of requests for memory that other shares have now ([`crate::limits::Live::withheld_bytes`]).
    pub asked: AtomicU32,
    /// Why the process's memory cannot be swapped out: flags such as [`MANAGED`]. They are never cleared.
    pub unmovable: AtomicU32,
    /// What the last request needs, in bytes.
    pub needed_bytes: AtomicU64,
    /// The last [`LeasePage::move_asked`] that the guard has ended.
    pub move_done: AtomicU32,
    /// How it ended: 0, a code of the driver (`CUresult`), or one of the values from [`MOVE_BUSY`] on.
    pub move_status: AtomicU32,
    /// Whether the guard moves memory when it is asked to: [`CAN_MOVE`], [`CANNOT_MOVE`], or 0 if it does not say.
    pub can_move: AtomicU32,
    /// Grows with each piece of memory that the guard has copied, so that the agent sees that a move goes on.
    pub move_progress: AtomicU32,
    /// Bytes on the GPU that the guard can move.
    pub movable_bytes: AtomicU64,
    /// Bytes on the host.
    pub moved_bytes: AtomicU64,
    _guard: [AtomicU64; 1],
    /// Marks by stream, in any order.
    pub streams: [StreamMarks; STREAMS],
}

/// The process has managed memory.
pub const MANAGED: u32 = 1;

/// The process shares memory with others: it exported or imported some, or bound some to a multicast object.
pub const SHARED: u32 = 2;

/// Set in [`LeasePage::move_asked`] for a move to the host. Otherwise the memory comes back.
pub const TO_HOST: u32 = 1;

/// The guard moves plain memory. There may be none.
pub const CAN_MOVE: u32 = 1;

/// It would, but the process sees several GPUs.
pub const CANNOT_MOVE: u32 = 2;

/// A call or work of the process did not end, or a stream is being captured. Nothing was moved.
pub const MOVE_BUSY: u32 = u32::MAX;

/// The process got no memory of the host. What had been moved is back, as far as the GPU had room.
pub const MOVE_NO_MEMORY: u32 = u32::MAX - 1;

/// The process has a context whose handle the guard does not know, so it cannot wait for its work. Nothing was moved.
pub const MOVE_UNKNOWN_CONTEXT: u32 = u32::MAX - 2;

/// The marks of one stream.
#[derive(Debug, Default)]
#[repr(C)]
pub struct StreamMarks {
    /// Launches before the last mark.
    pub marked: AtomicU64,
    /// Launches before the last mark that the GPU has reached.
    pub completed: AtomicU64,
}

const _: () = assert!(size_of::<LeasePage>() == 128 + STREAMS * 16);
const _: () = assert!(size_of::<LeasePage>() <= SIZE);

/// Whether a process may launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// It may not.
    None,
    /// It may, with at most this many launches in flight; at most [`Lease::MAX_CAP`].
    Capped(u32),
    /// It may, and counts nothing.
    Free,
}

impl Lease {
    /// The largest cap.
    pub const MAX_CAP: u32 = FREE - 1;
}

/// Low bits of a word that mean [`Lease::Free`].
const FREE: u32 = 0xfff;

/// A lease as one word: the cap in the low 12 bits, and a sequence number above, so that each change is another word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseWord(pub u32);

impl LeaseWord {
    /// The lease.
    pub const fn lease(self) -> Lease {
        match self.0 & FREE {
            0 => Lease::None,
            FREE => Lease::Free,
            cap => Lease::Capped(cap),
        }
    }

    /// The word for another lease: the same word if the lease is the same.
    #[must_use]
    pub const fn with(self, lease: Lease) -> Self {
        let low = match lease {
            Lease::None => 0,
            Lease::Free => FREE,
            Lease::Capped(0) => 1,
            Lease::Capped(cap) if cap > Lease::MAX_CAP => Lease::MAX_CAP,
            Lease::Capped(cap) => cap,
        };
        if low == self.0 & FREE {
            return self;
        }
        Self((self.0 & !FREE).wrapping_add(FREE + 1) | low)
    }
}

/// What a process does, read from its page. The container may have written any values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Whether a mark has not been reached, or a thread is in a launch.
    pub is_running: bool,
    /// Whether a thread waits.
    pub is_waiting: bool,
    /// Launches that have ended, as far as marks show.
    pub completed: u64,
}

impl LeasePage {
    /// Whether the process launches without counting.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.lease.load(Ordering::Relaxed) & FREE == FREE
    }

    /// What the process does. The loads follow an earlier store to [`LeasePage::lease`] in the order that all threads
    /// see: a thread that does not see that store is counted here.
    pub fn work(&self) -> Work {
        let mut work = Work {
            is_running: self.inside.load(Ordering::SeqCst) > 0,
            is_waiting: self.waiting.load(Ordering::SeqCst) > 0,
            completed: 0,
        };
        for stream in &self.streams {
            let completed = stream.completed.load(Ordering::Acquire);
            work.is_running |= stream.marked.load(Ordering::Acquire) > completed;
            work.completed = work.completed.wrapping_add(completed);
        }
        work
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page() -> LeasePage {
        LeasePage {
            lease: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            opens_at_ms: AtomicU64::new(0),
            suspended: AtomicU32::new(0),
            move_asked: AtomicU32::new(0),
            _agent: Default::default(),
            waiting: AtomicU32::new(0),
            inside: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            unmovable: AtomicU32::new(0),
            needed_bytes: AtomicU64::new(0),
            move_done: AtomicU32::new(0),
            move_status: AtomicU32::new(0),
            can_move: AtomicU32::new(0),
            move_progress: AtomicU32::new(0),
            movable_bytes: AtomicU64::new(0),
            moved_bytes: AtomicU64::new(0),
            _guard: Default::default(),
            streams: core::array::from_fn(|_| StreamMarks::default()),
        }
    }

    #[test]
    fn a_word_holds_its_lease() {
        for lease in [Lease::Free, Lease::None, Lease::Capped(1), Lease::Capped(Lease::MAX_CAP)] {
            assert_eq!(LeaseWord(u32::MAX - 7).with(lease).lease(), lease);
        }
        assert_eq!(LeaseWord(0).with(Lease::Capped(0)).lease(), Lease::Capped(1));
        assert_eq!(
            LeaseWord(0).with(Lease::Capped(u32::MAX)).lease(),
            Lease::Capped(Lease::MAX_CAP)
        );
    }

    #[test]
    fn each_change_is_another_word() {
        let none = LeaseWord::default();
        let capped = none.with(Lease::Capped(4));
        let again = capped.with(Lease::None).with(Lease::Capped(4));
        assert_eq!(capped.with(Lease::Capped(4)), capped);
        assert_ne!(again, capped);
        assert_eq!(again.lease(), capped.lease());
        // The sequence number wraps, and leaves the cap alone.
        assert_eq!(LeaseWord(0xffff_f004).with(Lease::Capped(5)), LeaseWord(5));
    }

    #[test]
    fn work_runs_until_its_marks_are_reached() {
        let page = page();
        assert_eq!(page.work(), Work::default());
        page.streams[3].marked.store(5, Ordering::Relaxed);
        assert!(page.work().is_running);
        page.streams[3].completed.store(5, Ordering::Relaxed);
        page.streams[9].completed.store(2, Ordering::Relaxed);
        assert_eq!(page.work(), Work { is_running: false, is_waiting: false, completed: 7 });
        page.inside.store(1, Ordering::Relaxed);
        assert!(page.work().is_running);
    }

    #[test]
    fn forged_numbers_overflow_nothing() {
        let page = page();
        for stream in &page.streams {
            stream.completed.store(u64::MAX, Ordering::Relaxed);
        }
        assert!(!page.work().is_running);
    }
}
