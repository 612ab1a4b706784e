//! An allocation from a pool, from request to pointer.

use core::sync::atomic::Ordering;

use octavo_guard_abi::charge::{PHYSICAL_GRANULE, rounded};

use super::current::CurrentPool;
use super::{ANY_POOLED, Pinned, Pool};
use crate::cuda::{Pointer, Status};
use crate::hooks::pools::real;
use crate::leases::wait_while_suspended;
use crate::platform::ffi::Out;
use crate::process::{self, Process};
use crate::tracking::account::advances::UnderWay;
use crate::tracking::account::reserve::{GrowthRefused, Reserve};
use crate::tracking::account::{self, Charge, reclaim};
use crate::tracking::streams::Stream;

/// An allocation from a pool.
pub(crate) struct PoolAllocation<M> {
    /// Requested bytes.
    pub(crate) bytes: usize,
    /// The stream that orders it.
    pub(crate) stream: Stream,
    /// The pool; `None` for the current pool of the stream's GPU.
    pub(crate) pool: Option<Pool>,
    /// Where the driver writes the address.
    pub(crate) pointer: Out<Pointer>,
    /// Calls the driver.
    pub(crate) make: M,
}

impl<M: FnOnce() -> Status> PoolAllocation<M> {
    /// Charges it, makes it and records the pointer.
    pub(crate) fn run(self) -> Status {
        wait_while_suspended();
        self.try_run().unwrap_or_else(|status| status)
    }

    fn try_run(self) -> Result<Status, Status> {
        let process = process::get()?;
        // It becomes a node of a graph, whose memory is charged at launch.
        if self.stream.is_capturing() {
            return Ok((self.make)());
        }
        let current = match self.pool {
            Some(_) => None,
            None => CurrentPool::of(self.stream.device()?),
        };
        // A driver without pools reports so itself.
        let Some(pool) = self.pool.or(current.as_ref().map(|current| current.pool)) else {
            return Ok((self.make)());
        };
        let pinned = if let Some(pinned) = pool.pin() {
            pinned
        } else {
            pool.record(Some(self.stream.device()?.0))?;
            pool.pin().unwrap_or(Pinned::Uncharged)
        };
        let Pinned::Charged(reserve, mut pin) = pinned else { return Ok((self.make)()) };
        let bytes = rounded(self.bytes as u64, PHYSICAL_GRANULE);
        let (advance, _under_way) = charge_growth(process, pool, &reserve, bytes)?;
        ANY_POOLED.store(true, Ordering::Relaxed);
        let status = (self.make)();
        let address = self.pointer.read().filter(|_| status.is_success());
        let Some(address) = address else {
            reserve.settle(advance, || pin.reserved());
            return Ok(status);
        };
        // Another thread may have changed the current pool of the GPU meanwhile.
        let own = current.map_or(pool, |current| current.of_allocation(address));
        if own != pool {
            reserve.settle(advance, || pin.reserved());
            own.record(Some(reserve.device))?;
            own.settle();
        } else if let Err(GrowthRefused(advance)) =
            reserve.settle_growth(advance, || pin.reserved())
        {
            if self.stream.is_per_thread {
                real::cuMemFreeAsync_ptsz(address, self.stream.handle);
            } else {
                real::cuMemFreeAsync(address, self.stream.handle);
            }
            self.stream.synchronize();
            pool.trim(reserve.counted());
            reserve.settle(advance, || pin.reserved());
            account::note_refusal(reserve.device);
            return Err(Status::OUT_OF_MEMORY);
        }
        pin.record_pointer(process, address, own);
        Ok(status)
    }
}

/// Charges the possible growth of a pool for an allocation, which is under way from then on.
fn charge_growth(
    process: &'static Process,
    pool: Pool,
    reserve: &Reserve,
    bytes: u64,
) -> Result<(Charge, UnderWay<'static>), Status> {
    let advances = &process.advances;
    let under_way = advances.begin();
    let was_alone = match reserve.advance_once(bytes) {
        Err(Status::OUT_OF_MEMORY) => under_way.was_alone(),
        answer => return Ok((answer?, under_way)),
    };
    if reclaim::run(reserve.device, bytes) || !was_alone {
        match reserve.advance(bytes) {
            Err(Status::OUT_OF_MEMORY) => {}
            answer => return Ok((answer?, advances.begin_now())),
        }
    }
    // Idle memory that could not be trimmed may satisfy the request.
    let answer = if pool.idle() >= bytes { reserve.advance(0) } else { Err(Status::OUT_OF_MEMORY) };
    let advance = answer.inspect_err(|_| account::note_refusal(reserve.device))?;
    Ok((advance, advances.begin_now()))
}
