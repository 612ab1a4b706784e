//! Leases of GPU time: whether this process may launch, and how much it may have in flight.
//!
//! The agent shares a page with the process ([`octavo_guard_abi::lease_page`]). Without one, or with a lease that is
//! free, a launch costs two loads. Otherwise a thread enters before its launch and leaves after it:
//!
//! ```text
//! enter:  count as inside, then read the lease      none, or no room: leave, wait, try again
//! leave:  count the launch, mark its stream if due, then no longer count as inside
//! ```
//!
//! The agent ends a lease and then reads how many threads are inside. Of a thread and the agent at least one sees the other, so no
//! launch goes unnoticed.
//!
//! Counters may be wrong: a thread leaves a launch by `longjmp`, or the GPU never reaches a mark of a lost context. So no
//! wait depends on them alone. A thread goes on without room after a tenth of a second, and the agent lets a share that is
//! late have turns again.
//!
//! Launches in flight are those after the last mark that the GPU has reached. Not each launch is marked: the unmarked ones
//! are at most a quarter of the cap.
//!
//! ```text
//! streams   launches and marks of each stream
//! marks     how a mark is written: by the GPU, or by a host function
//! suspended waits while the process's memory is swapped out
//! waiting   a thread that waits, and for how long
//! doorbell  wakes the agent when a thread begins to wait
//! needs     asks for memory that other shares have
//! ```

use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use octavo_guard_abi::lease_page::{Lease, LeasePage, LeaseWord};

use crate::cuda::Status;
use crate::platform::sys::file::File;
use crate::platform::sys::{futex, memory};
use crate::process::{self, Process};
use crate::tracking::streams::Stream;

mod doorbell;
mod marks;
mod needs;
mod streams;
mod suspended;
mod waiting;

use doorbell::Doorbell;
use marks::Marker;
use needs::Asker;
use streams::Streams;
use waiting::Waiting;

pub(crate) use suspended::wait_while_suspended;

/// The leases of a stream's GPU in this process, if there was ever a page for its first share.
#[inline]
pub(crate) fn of(stream: Stream) -> Option<&'static Leases> {
    let process = process::get().ok()?;
    if let [share] = process.shares.all() {
        return share.leases.get();
    }
    of_several(process, stream)
}

/// As above, if the process has shares on several GPUs.
#[inline(never)]
fn of_several(process: &'static Process, stream: Stream) -> Option<&'static Leases> {
    let (device, _) = stream.device().ok()?;
    let mut share_indices = process.shares_of(device).ok()?;
    process.shares.get(share_indices.next()?)?.leases.get()
}

/// The leases of one share in this process, once the agent shares a page. Until then they take no memory.
#[derive(Debug)]
pub(crate) struct ShareLeases {
    /// Index of the share in its list, by which marks of host functions find it.
    share_index: usize,
    leases: AtomicPtr<Leases>,
}

impl ShareLeases {
    pub(crate) const fn new(share_index: usize) -> Self {
        Self { share_index, leases: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// The leases, if there was ever a page.
    #[inline]
    pub(crate) fn get(&self) -> Option<&'static Leases> {
        // JUSTIFICATION: they are read without a lock on every launch.
        // SAFETY: the pointer is null, or that of `take_page`, whose memory is never unmapped.
        unsafe { self.leases.load(Ordering::Acquire).as_ref() }
    }

    /// Whether a launch needs no lease.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.get().is_none_or(Leases::is_free)
    }

    /// The page, if there is one.
    pub(crate) fn page(&self) -> Option<&'static LeasePage> {
        self.get().and_then(Leases::page)
    }

    /// Whether there is a page.
    pub(crate) fn has_page(&self) -> bool {
        self.page().is_some()
    }

    /// Takes a page of the agent, and the doorbell. One thread calls this. Without memory there are no leases.
    pub(crate) fn take_page(&self, page: &'static LeasePage, doorbell: File) {
        let leases = match self.get() {
            Some(leases) => leases,
            None => match memory::map_anonymous(size_of::<Leases>()) {
                Ok(place) => {
                    let place = place.cast::<Leases>();
                    // JUSTIFICATION: the guard has no allocator.
                    // SAFETY: the memory was mapped for a `Leases`, and begins at a page boundary.
                    unsafe { place.write(Leases::new(self.share_index)) };
                    self.leases.store(place.as_ptr(), Ordering::Release);
                    // JUSTIFICATION: as above.
                    // SAFETY: it was written above, and is never unmapped.
                    unsafe { place.as_ref() }
                }
                Err(_) => return,
            },
        };
        leases.doorbell.set(Some(doorbell));
        leases.set_page(Some(page));
    }

    /// Gives the page up when its agent is gone.
    pub(crate) fn drop_page(&self) {
        if let Some(leases) = self.get() {
            leases.set_page(None);
            leases.doorbell.set(None);
        }
    }
}

/// The leases of one share in this process.
#[derive(Debug)]
pub(crate) struct Leases {
    /// Index of the share in its list, by which marks of host functions find it.
    share_index: usize,
    /// The page; null until the agent shares one, and after it is gone.
    page: AtomicPtr<LeasePage>,
    /// The lease for which `room` was counted.
    counted: AtomicU32,
    /// Launches that fit under the cap before marks are counted again.
    room: AtomicI32,
    /// The time of the page that ran out while the agent was gone; 0 if none did.
    expired_ms: AtomicU64,
    streams: Streams,
    marker: Marker,
    /// Wakes the agent.
    doorbell: Doorbell,
    /// Held by the thread that asks for memory.
    asker: Asker,
}

/// A thread that is in a launch.
#[derive(Debug)]
pub(crate) struct Inside<'a> {
    leases: &'a Leases,
    page: &'static LeasePage,
}

impl Leases {
    const fn new(share_index: usize) -> Self {
        Self {
            share_index,
            page: AtomicPtr::new(core::ptr::null_mut()),
            counted: AtomicU32::new(0),
            room: AtomicI32::new(0),
            expired_ms: AtomicU64::new(0),
            streams: Streams::new(),
            marker: Marker::new(),
            doorbell: Doorbell::new(),
            asker: Asker::new(()),
        }
    }

    fn page(&self) -> Option<&'static LeasePage> {
        let page = self.page.load(Ordering::Acquire);
        // JUSTIFICATION: the page is memory that the agent shares.
        // SAFETY: it is null, or a page that `set_page` took, which is never unmapped.
        unsafe { page.as_ref() }
    }

    /// Takes a page of the agent, or drops the one that there was. A page stays mapped: threads and the GPU may still use
    /// it.
    fn set_page(&self, page: Option<&'static LeasePage>) {
        if let Some(page) = page {
            self.streams.begin(page);
            self.marker.forget();
        }
        let page = page.map_or(core::ptr::null_mut(), |page| (&raw const *page).cast_mut());
        let old = self.page.swap(page, Ordering::AcqRel);
        // JUSTIFICATION: as in `page`.
        // SAFETY: as in `page`.
        if let Some(old) = unsafe { old.as_ref() } {
            // Its threads find the new page.
            futex::wake_all(&old.lease);
            futex::wake_all(&old.suspended);
        }
    }

    /// Whether a launch needs no lease.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.page().is_none_or(LeasePage::is_free)
    }

    /// Waits until this thread may launch into a stream; `None` if the launch is not counted. Without a stream nothing is marked.
    pub(crate) fn enter(&self, stream: Option<Stream>) -> Option<Inside<'_>> {
        // What is captured takes no time of the GPU, and a capture that waits would keep other threads from their calls.
        if stream.is_some_and(Stream::is_capturing) {
            self.wait_while_suspended();
            return None;
        }
        let mut waiting: Option<Waiting> = None;
        loop {
            let page = self.page()?;
            page.inside.fetch_add(1, Ordering::SeqCst);
            let word = LeaseWord(page.lease.load(Ordering::SeqCst));
            let lease = word.lease();
            let has_waited = waiting.as_ref().is_some_and(Waiting::has_waited_for_room);
            if let Lease::Capped(cap) = lease
                && (self.take_room(page, word, cap) || has_waited)
            {
                return Some(Inside { leases: self, page });
            }
            match (stream.filter(|_| waiting.is_none()), lease) {
                (None, _) | (_, Lease::Free) => {}
                (Some(stream), Lease::None) => self.mark_end(page, stream),
                (Some(stream), Lease::Capped(_)) => self.mark(page, stream),
            }
            page.inside.fetch_sub(1, Ordering::SeqCst);
            if lease == Lease::Free {
                return None;
            }
            let waiting = waiting.get_or_insert_with(|| Waiting::begin(page));
            if !core::ptr::eq(waiting.page, page) {
                *waiting = Waiting::begin(page);
            }
            match lease {
                Lease::None if self.is_without_agent(waiting) => return None,
                Lease::None => waiting.for_change(&self.doorbell, word),
                Lease::Capped(_) | Lease::Free => waiting.for_room(),
            }
        }
    }

    /// Whether the agent has not moved the page's time on, although a thread has waited for it. Then no further thread waits until
    /// it does. Each still rings: an agent that has only slept moves the time on when it is woken.
    fn is_without_agent(&self, waiting: &Waiting) -> bool {
        let opens_at = waiting.page.opens_at_ms.load(Ordering::Relaxed);
        if self.expired_ms.load(Ordering::Relaxed) == opens_at {
            self.doorbell.ring();
            return true;
        }
        let is_over = waiting.is_over(opens_at);
        if is_over {
            self.expired_ms.store(opens_at, Ordering::Relaxed);
        }
        is_over
    }

    /// Takes room for one launch under the cap.
    fn take_room(&self, page: &LeasePage, word: LeaseWord, cap: u32) -> bool {
        if self.counted.load(Ordering::Relaxed) == word.0
            && self.room.fetch_sub(1, Ordering::Relaxed) > 0
        {
            return true;
        }
        let room = self.streams.room(page, cap);
        self.room.store(room - 1, Ordering::Relaxed);
        self.counted.store(word.0, Ordering::Relaxed);
        room > 0
    }

    /// Appends a mark to a stream before its thread waits. It may have launches that were not counted, under a free lease.
    fn mark_end(&self, page: &'static LeasePage, stream: Stream) {
        if stream.takes_work()
            && let Some(index) = self.streams.of(page, stream)
        {
            self.streams.count(page, index, 1);
            self.mark(page, stream);
        }
    }

    /// Appends a mark to a stream that has launches since its last one.
    fn mark(&self, page: &'static LeasePage, stream: Stream) {
        if let Some(index) = self.streams.known(stream) {
            self.streams.mark(page, index, 1, &mut |value| self.write(page, index, value, stream));
        }
    }

    /// Writes a mark. `None` if that is not possible now: the stream is being captured, or it is the legacy stream and a write
    /// would invalidate the capture of another one.
    fn write(
        &self,
        page: &'static LeasePage,
        index: usize,
        value: u64,
        stream: Stream,
    ) -> Option<Status> {
        if !stream.takes_work() {
            return None;
        }
        let place = marks::Place { share: self.share_index, stream: index };
        Some(self.marker.write(page, place, value, stream))
    }

    /// Marks a stream before the program waits for it, or records an event in it.
    #[inline]
    pub(crate) fn before_wait(&self, stream: Stream) {
        if let Some(page) = self.page()
            && !page.is_free()
        {
            self.mark(page, stream);
        }
    }

    /// Takes the result of a wait. If it is that of a context's whole work, nothing is left in flight that has no mark.
    #[inline]
    pub(crate) fn after_wait(&self, status: Status, is_all: bool) {
        if status.is_lost() {
            self.forget_all();
        } else if status.is_success()
            && is_all
            && let Some(page) = self.page()
        {
            self.streams.settle(page);
        }
    }

    /// Marks and forgets a stream before the program destroys it.
    #[inline]
    pub(crate) fn forget(&self, stream: Stream) {
        self.before_wait(stream);
        if let Some(page) = self.page() {
            self.streams.forget(page, stream);
        }
    }

    /// Forgets all streams, and where marks are written, when a context ends or is lost.
    pub(crate) fn forget_all(&self) {
        if let Some(page) = self.page() {
            self.streams.forget_all(page);
        }
        self.marker.forget();
    }

    /// Notes that the GPU has reached a mark of a host function.
    pub(crate) fn reached(&self, stream: usize, value: u64) {
        if let Some(mark) = self.page().and_then(|page| page.streams.get(stream)) {
            mark.completed.fetch_max(value, Ordering::Release);
        }
    }
}

impl Inside<'_> {
    /// Ends it without a launch.
    pub(crate) fn leave_uncounted(self) {
        self.page.inside.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts the launch into a stream, and ends it.
    pub(crate) fn leave(self, stream: Stream, status: Status) {
        let most = match LeaseWord(self.page.lease.load(Ordering::Relaxed)).lease() {
            Lease::Capped(cap) => u64::from(cap / 4).clamp(1, 16),
            Lease::None | Lease::Free => 1,
        };
        self.leave_with(stream, status, most);
    }

    /// As above, and marks the stream: what was launched takes long.
    pub(crate) fn leave_marked(self, stream: Stream, status: Status) {
        self.leave_with(stream, status, 1);
    }

    /// As above, and marks the stream if it has `most` unmarked launches.
    fn leave_with(self, stream: Stream, status: Status, most: u64) {
        let Self { leases, page } = self;
        if status.is_success() {
            if let Some(index) = leases.streams.of(page, stream)
                && leases.streams.count(page, index, most)
            {
                let mut write = |value| leases.write(page, index, value, stream);
                leases.streams.mark(page, index, most, &mut write);
            }
        } else if status.is_lost() {
            leases.forget_all();
        }
        page.inside.fetch_sub(1, Ordering::SeqCst);
    }
}
