//! Writing marks: by the GPU into the page, or by a host function if the driver refuses that.
//!
//! The GPU can write into the page once it is registered as host memory. The registration belongs to a context, so it is
//! made again when a context has ended. Only streams of that context write into the page: a write that another context has queued
//! would fault if the registration ended before it. Other streams call a host function.

use core::ffi::c_void;
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use octavo_guard_abi::lease_page::{LeasePage, SIZE, StreamMarks};

use crate::cuda::Status;
use crate::driver::call;
use crate::platform::ffi::Out;
use crate::process;
use crate::tracking::streams::Stream;

/// The page is not registered yet.
const UNKNOWN: u32 = 0;
/// A thread registers it.
const BUSY: u32 = 1;
/// `address` is the GPU's address of the page.
const REGISTERED: u32 = 2;
/// The GPU cannot write into it.
const UNAVAILABLE: u32 = 3;

/// Writes marks.
#[derive(Debug)]
pub(super) struct Marker {
    state: AtomicU32,
    /// The page that is registered.
    page: AtomicUsize,
    /// Its address on the GPU.
    address: AtomicU64,
    /// The context that registered it.
    context: AtomicUsize,
}

/// Where a mark belongs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Index of the share.
    pub(super) share: usize,
    /// Index of the stream on the page.
    pub(super) stream: usize,
}

impl Marker {
    pub(super) const fn new() -> Self {
        Self {
            state: AtomicU32::new(UNKNOWN),
            page: AtomicUsize::new(0),
            address: AtomicU64::new(0),
            context: AtomicUsize::new(0),
        }
    }

    /// Makes the next mark register the page again.
    pub(super) fn forget(&self) {
        let _ =
            self.state.compare_exchange(REGISTERED, UNKNOWN, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Appends a mark to a stream: the GPU stores `value` once it has done all earlier work.
    pub(super) fn write(
        &self,
        page: &'static LeasePage,
        place: Place,
        value: u64,
        stream: Stream,
    ) -> Status {
        if let Some(start) = self.address(page, stream) {
            let mark = offset_of!(LeasePage, streams) + place.stream * size_of::<StreamMarks>();
            let address = start + (mark + offset_of!(StreamMarks, completed)) as u64;
            let status = stream.write_after(address, value);
            if status.is_success() || status.is_lost() {
                return status;
            }
            // Otherwise the registration may have ended with its context.
            let is_refused = status == Status::NOT_FOUND || status == Status::NOT_SUPPORTED;
            let state = if is_refused { UNAVAILABLE } else { UNKNOWN };
            self.state.store(state, Ordering::Release);
        }
        stream.call_after(on_reached, place.encode(value))
    }

    /// The GPU's address of the page for a stream; `None` if there is none, another thread registers it, or it is that of another
    /// context.
    fn address(&self, page: &'static LeasePage, stream: Stream) -> Option<u64> {
        let context = stream.context()?;
        let start = (&raw const *page).addr();
        let state = self.state.load(Ordering::Acquire);
        if state == REGISTERED && self.page.load(Ordering::Relaxed) == start {
            let is_own = self.context.load(Ordering::Relaxed) == context;
            return is_own.then(|| self.address.load(Ordering::Relaxed));
        }
        // The registration would be that of the current context.
        if Stream::legacy(0).context() != Some(context) {
            return None;
        }
        // Unknown, or of an earlier page.
        let is_free = state == UNKNOWN || state == REGISTERED;
        let claimed = is_free
            && self
                .state
                .compare_exchange(state, BUSY, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !claimed {
            return None;
        }
        let found = register(page);
        if found.is_some_and(|(_, is_new)| is_new) {
            self.context.store(context, Ordering::Relaxed);
        }
        let address = found.map(|(address, _)| address);
        self.page.store(start, Ordering::Relaxed);
        self.address.store(address.unwrap_or(0), Ordering::Relaxed);
        let state = if address.is_some() { REGISTERED } else { UNAVAILABLE };
        self.state.store(state, Ordering::Release);
        // An earlier registration may be that of another context.
        address.filter(|_| self.context.load(Ordering::Relaxed) == context)
    }
}

/// Registers the page as host memory of the current context. Returns its address, and whether it was not registered before.
fn register(page: &'static LeasePage) -> Option<(u64, bool)> {
    /// `CU_MEMHOSTREGISTER_PORTABLE` and `CU_MEMHOSTREGISTER_DEVICEMAP`: for all contexts.
    const FLAGS: u32 = 1 | 2;
    /// `CU_STREAM_CAPTURE_MODE_RELAXED`: captures of other threads go on.
    const RELAXED: u32 = 2;
    let start = (&raw const *page).expose_provenance();
    let mut mode = RELAXED;
    let has_mode = call::cuThreadExchangeStreamCaptureMode(Out::to(&mut mode)).is_success();
    let status = call::cuMemHostRegister_v2(start, SIZE, FLAGS);
    if has_mode {
        // The mode that this thread had.
        let _ = call::cuThreadExchangeStreamCaptureMode(Out::to(&mut mode));
    }
    let is_registered = status.is_success() || status == Status::ALREADY_REGISTERED;
    let mut address = 0;
    let found = is_registered
        && call::cuMemHostGetDevicePointer_v2(Out::to(&mut address), start, 0).is_success();
    found.then_some((address, status.is_success()))
}

/// Bits of a share's index, and of a stream's.
const SHARE_BITS: u32 = 5;
const STREAM_BITS: u32 = 6;

impl Place {
    /// This place and a value in one number.
    #[allow(clippy::cast_possible_truncation, reason = "the guard runs on 64-bit machines")]
    fn encode(self, value: u64) -> usize {
        ((value as usize) << STREAM_BITS | self.stream) << SHARE_BITS | self.share
    }

    fn decode(number: usize) -> (Self, u64) {
        let share = number & ((1 << SHARE_BITS) - 1);
        let stream = number >> SHARE_BITS & ((1 << STREAM_BITS) - 1);
        (Self { share, stream }, (number >> (SHARE_BITS + STREAM_BITS)) as u64)
    }
}

/// The driver calls this when the GPU reaches a mark.
extern "C" fn on_reached(number: *mut c_void) {
    let (place, value) = Place::decode(number.addr());
    if let Ok(process) = process::get()
        && let Some(leases) = process.shares.get(place.share).and_then(|share| share.leases.get())
    {
        leases.reached(place.stream, value);
    }
}

const _: () = assert!(crate::shares::MAX_SHARES <= 1 << SHARE_BITS);
const _: () = assert!(octavo_guard_abi::lease_page::STREAMS <= 1 << STREAM_BITS);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_and_its_value_fit_into_one_number() {
        let place = Place { share: 31, stream: 63 };
        let (same, value) = Place::decode(place.encode(1 << 40));
        assert_eq!((same.share, same.stream, value), (31, 63, 1 << 40));
    }
}
