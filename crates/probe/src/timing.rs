//! Cost of calls.

use std::ptr::null_mut;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::driver::{CudaError, Handle, checked};
use crate::paths::GpuContext;

/// A kernel that does nothing, for any GPU since Maxwell.
const KERNEL: &[u8] = b".version 6.0\n.target sm_50\n.address_size 64\n\
    .visible .entry octavo_nothing()\n{\n    ret;\n}\n\0";

/// Batches of each measurement, after a discarded one.
const BATCHES: usize = 15;
/// Calls per batch: fewer launches than a driver queues before it blocks.
const LAUNCHES_PER_BATCH: u32 = 500;
const CALLS_PER_BATCH: u32 = 100;
const NANOSECOND: Duration = Duration::from_nanos(1);

/// Time of a call in nanoseconds: median and quartiles over the batches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Cost {
    /// The function.
    pub(crate) call: &'static str,
    /// Median.
    pub(crate) median_ns: f64,
    /// Lower quartile.
    pub(crate) lower_ns: f64,
    /// Upper quartile.
    pub(crate) upper_ns: f64,
}

/// Measures launches, allocations and memory queries.
pub(crate) fn measure(context: &GpuContext<'_>) -> Result<Vec<Cost>, CudaError> {
    Ok(vec![launches(context)?, pairs(context)?, questions(context)?])
}

fn launches(context: &GpuContext<'_>) -> Result<Cost, CudaError> {
    let cuda = context.cuda;
    let mut module: Handle = null_mut();
    cuda.module_load(&mut module, KERNEL.as_ptr().cast())?;
    let mut function: Handle = null_mut();
    cuda.module_function(&mut function, module, c"octavo_nothing".as_ptr())?;
    let launch = cuda.launcher()?;
    let cost = batches("cuLaunchKernel", LAUNCHES_PER_BATCH, || {
        let start = Instant::now();
        for _ in 0..LAUNCHES_PER_BATCH {
            // SAFETY: the function belongs to the module and has no arguments; there is one thread.
            let code = unsafe {
                launch(function, 1, 1, 1, 1, 1, 1, 0, null_mut(), null_mut(), null_mut())
            };
            checked("cuLaunchKernel", code)?;
        }
        let time = start.elapsed();
        cuda.context_synchronize()?;
        Ok(time)
    });
    cuda.module_unload(module)?;
    cost
}

fn pairs(context: &GpuContext<'_>) -> Result<Cost, CudaError> {
    const BYTES: usize = 2 << 20;
    let (allocate, free) = context.cuda.allocator()?;
    batches("cuMemAlloc and cuMemFree", CALLS_PER_BATCH, || {
        let start = Instant::now();
        for _ in 0..CALLS_PER_BATCH {
            let mut pointer = 0;
            // SAFETY: its type in cuda.h.
            checked("cuMemAlloc", unsafe { allocate(&mut pointer, BYTES) })?;
            // SAFETY: the pointer was allocated above.
            checked("cuMemFree", unsafe { free(pointer) })?;
        }
        Ok(start.elapsed())
    })
}

fn questions(context: &GpuContext<'_>) -> Result<Cost, CudaError> {
    batches("cuMemGetInfo", CALLS_PER_BATCH, || {
        let start = Instant::now();
        for _ in 0..CALLS_PER_BATCH {
            let (mut free, mut total) = (0, 0);
            context.cuda.memory_info(&mut free, &mut total)?;
        }
        Ok(start.elapsed())
    })
}

fn batches(
    call: &'static str,
    calls: u32,
    mut batch: impl FnMut() -> Result<Duration, CudaError>,
) -> Result<Cost, CudaError> {
    batch()?;
    let times = (0..BATCHES).map(|_| batch()).collect::<Result<Vec<_>, _>>()?;
    Ok(cost(call, calls, times))
}

/// The cost of a call from the times of batches.
fn cost(call: &'static str, calls: u32, mut times: Vec<Duration>) -> Cost {
    times.sort();
    let at = |part: usize| {
        let time = times.get(times.len() * part / 4).or(times.last());
        time.map_or(0.0, |time| time.div_duration_f64(NANOSECOND) / f64::from(calls))
    };
    Cost { call, median_ns: at(2), lower_ns: at(1), upper_ns: at(3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_the_median_of_batches_by_call() {
        let times = [50, 10, 40, 20, 30].map(Duration::from_nanos).to_vec();
        let cost = cost("call", 10, times);
        assert_eq!((cost.lower_ns, cost.median_ns, cost.upper_ns), (2.0, 3.0, 4.0));
    }
}
