//! Launches and marks of each stream.
//!
//! A stream has a place on the page while it has marks that the GPU has not reached. Streams are found by their handles.
//! There are more places than launches in flight for most programs; a launch for which there is none is not counted.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use octavo_guard_abi::lease_page::{LeasePage, STREAMS};

use crate::cuda::Status;
use crate::platform::ticks;
use crate::tracking::streams::Stream;

/// Key of a place without a stream.
const EMPTY: u64 = 0;

/// Key of a place whose stream was destroyed.
const DESTROYED: u64 = u64::MAX;

/// Places that a search looks at.
const MAX_STEPS: usize = 8;

/// The streams of a process on one page.
#[derive(Debug)]
pub(super) struct Streams {
    places: [Place; STREAMS],
}

/// What only this process needs to know about a stream.
#[derive(Debug)]
struct Place {
    /// See [`Stream::key`].
    key: AtomicU64,
    /// Launches so far.
    launched: AtomicU64,
    /// When the last mark was written, in ticks.
    marked_at: AtomicU64,
    /// Whether a thread writes a mark.
    is_marking: AtomicBool,
}

impl Streams {
    pub(super) const fn new() -> Self {
        let places = [const {
            Place {
                key: AtomicU64::new(EMPTY),
                launched: AtomicU64::new(0),
                marked_at: AtomicU64::new(0),
                is_marking: AtomicBool::new(false),
            }
        }; STREAMS];
        Self { places }
    }

    /// Begins a page: nothing is in flight on it.
    pub(super) fn begin(&self, page: &LeasePage) {
        for (place, mark) in self.places.iter().zip(&page.streams) {
            let launched = place.launched.load(Ordering::Relaxed);
            mark.marked.store(launched, Ordering::Relaxed);
            mark.completed.store(launched, Ordering::Relaxed);
        }
    }

    /// The place of a stream that has one.
    pub(super) fn known(&self, stream: Stream) -> Option<usize> {
        self.with_key(stream.key())
    }

    fn with_key(&self, key: u64) -> Option<usize> {
        steps(key).find(|index| self.places[*index].key.load(Ordering::Acquire) == key)
    }

    /// The place of a stream, a new one if it has none; `None` if all are in use.
    pub(super) fn of(&self, page: &LeasePage, stream: Stream) -> Option<usize> {
        let key = stream.key();
        self.with_key(key)
            .or_else(|| steps(key).find(|index| self.take(*index, EMPTY, key)))
            .or_else(|| {
                steps(key).find(|index| {
                    let old = self.places[*index].key.load(Ordering::Acquire);
                    self.is_idle(page, *index) && self.take(*index, old, key)
                })
            })
    }

    fn take(&self, index: usize, old: u64, key: u64) -> bool {
        let place = &self.places[index].key;
        place.compare_exchange(old, key, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Whether nothing of a place is in flight.
    fn is_idle(&self, page: &LeasePage, index: usize) -> bool {
        let completed = page.streams[index].completed.load(Ordering::Acquire);
        self.places[index].launched.load(Ordering::Acquire) <= completed
    }

    /// Launches that fit under a cap. If the GPU has reached all marks, one fits in any case: no mark would show when
    /// there is room.
    pub(super) fn room(&self, page: &LeasePage, cap: u32) -> i32 {
        let (mut in_flight, mut is_marked) = (0_u64, false);
        for (place, mark) in self.places.iter().zip(&page.streams) {
            let completed = mark.completed.load(Ordering::Acquire);
            is_marked |= mark.marked.load(Ordering::Acquire) > completed;
            let launched = place.launched.load(Ordering::Acquire);
            in_flight = in_flight.saturating_add(launched.saturating_sub(completed));
        }
        let room = u64::from(cap).saturating_sub(in_flight);
        let room = i32::try_from(room).unwrap_or(i32::MAX);
        if is_marked { room } else { room.max(1) }
    }

    /// Counts a launch. Returns whether a mark is due: `most` launches are unmarked, or the last mark is old.
    pub(super) fn count(&self, page: &LeasePage, index: usize, most: u64) -> bool {
        let place = &self.places[index];
        let launched = place.launched.fetch_add(1, Ordering::SeqCst) + 1;
        let marked = page.streams[index].marked.load(Ordering::Relaxed);
        launched.saturating_sub(marked) >= most
            || ticks::have_passed(place.marked_at.load(Ordering::Relaxed))
    }

    /// Writes a mark for all launches so far, unless another thread does. `write` returns `None` if no mark can be written now.
    pub(super) fn mark(
        &self,
        page: &LeasePage,
        index: usize,
        most: u64,
        write: &mut dyn FnMut(u64) -> Option<Status>,
    ) {
        let (place, mark) = (&self.places[index], &page.streams[index]);
        // No thread waits for another one's call to the driver. The one that writes looks again afterwards.
        while !place.is_marking.swap(true, Ordering::SeqCst) {
            let launched = place.launched.load(Ordering::SeqCst);
            let marked = mark.marked.load(Ordering::Relaxed);
            if launched > marked {
                // First, because the GPU may reach it at once.
                mark.marked.store(launched, Ordering::SeqCst);
                let status = write(launched);
                if !status.is_some_and(Status::is_success) {
                    // Nothing will reach it.
                    mark.marked.store(marked, Ordering::SeqCst);
                }
                place.marked_at.store(ticks::now(), Ordering::Relaxed);
                if status.is_none() {
                    place.is_marking.store(false, Ordering::SeqCst);
                    break;
                }
                if status.is_some_and(|status| !status.is_success()) {
                    place.take_back(launched - marked);
                }
            }
            place.is_marking.store(false, Ordering::SeqCst);
            let marked = mark.marked.load(Ordering::SeqCst);
            if place.launched.load(Ordering::SeqCst).saturating_sub(marked) < most {
                break;
            }
        }
    }

    /// Gives the place of a stream up. It is used again once the GPU has reached its marks.
    pub(super) fn forget(&self, page: &LeasePage, stream: Stream) {
        if let Some(index) = self.known(stream)
            && self.take(index, stream.key(), DESTROYED)
        {
            self.places[index].settle(page.streams[index].marked.load(Ordering::SeqCst));
        }
    }

    /// Notes that all work has ended: what has no mark is no longer in flight. Launches that other threads make meanwhile are
    /// not counted. A place in which a thread writes a mark is left as it is.
    pub(super) fn settle(&self, page: &LeasePage) {
        for (place, mark) in self.places.iter().zip(&page.streams) {
            place.while_unmarked(|| place.settle(mark.marked.load(Ordering::SeqCst)));
        }
    }

    /// Gives all places up, whose marks the GPU may never reach. If it does, the last one is the value that is here.
    pub(super) fn forget_all(&self, page: &LeasePage) {
        for (place, mark) in self.places.iter().zip(&page.streams) {
            place.while_unmarked(|| {
                let marked = mark.marked.load(Ordering::SeqCst);
                place.settle(marked);
                mark.completed.store(marked, Ordering::SeqCst);
            });
            place.key.store(EMPTY, Ordering::Release);
        }
    }
}

impl Place {
    /// Runs `work` unless a thread writes a mark.
    fn while_unmarked(&self, work: impl FnOnce()) {
        if !self.is_marking.swap(true, Ordering::SeqCst) {
            work();
            self.is_marking.store(false, Ordering::SeqCst);
        }
    }

    /// Forgets the launches after the last mark.
    fn settle(&self, marked: u64) {
        self.launched.fetch_min(marked, Ordering::SeqCst);
    }

    /// Takes launches back that are not in flight.
    fn take_back(&self, launches: u64) {
        let less = |launched: u64| Some(launched.saturating_sub(launches));
        let _ = self.launched.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }
}

/// The places where a key may be.
fn steps(key: u64) -> impl Iterator<Item = usize> + Clone {
    // Handles are addresses: their low bits are equal, and their high ones.
    let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    (0..MAX_STEPS).map(move |step| first.wrapping_add(step) % STREAMS)
}
