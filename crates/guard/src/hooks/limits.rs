//! Context limits that take GPU memory: stacks, the `printf` buffer, the device heap, pending
//! launches of device-side kernels. The defaults are part of the charge for the context. What a
//! program adds is charged here until it lowers the limit or the context ends.

use octavo_guard_abi::charge::{PHYSICAL_GRANULE, rounded};

use crate::cuda::{Device, Opaque, Status};
use crate::devices;
use crate::driver::call;
use crate::platform::ffi::Out;
use crate::process;
use crate::tracking::account::reserve::Reserve;
use crate::tracking::account::{self, Charge, reclaim};
use crate::tracking::allocation;
use crate::tracking::table::{Entry, EntryKind};

/// Limits (`CUlimit`).
const STACK: u32 = 0;
const PRINTF: u32 = 1;
const HEAP: u32 = 2;
const LAUNCH_DEPTH: u32 = 3;
const PENDING_LAUNCHES: u32 = 4;

/// Attributes of devices (`CUdevice_attribute`).
const MULTIPROCESSORS: u32 = 16;
const THREADS_PER_MULTIPROCESSOR: u32 = 39;

/// Memory of one level of synchronising device-side launches: up to 150 MiB (CUDA programming
/// guide).
const DEPTH_BYTES: u64 = 150 << 20;

/// Memory of one pending launch: its parameters have at most this size.
const LAUNCH_BYTES: u64 = 4096;

hooks! {
    CUDA, Status;

    /// Sets a limit of the current context.
    fn cuCtxSetLimit(limit: u32, value: usize) -> Status {
        set(limit, value).unwrap_or_else(|status| status)
    }
}

fn set(limit: u32, value: usize) -> Result<Status, Status> {
    if limit > PENDING_LAUNCHES {
        return Ok(real::cuCtxSetLimit(limit, value));
    }
    let process = process::get()?;
    let (device, context) = (devices::current()?, allocation::context());
    // The driver itself refuses a limit that it does not know.
    let Some(before) = current(limit) else { return Ok(real::cuCtxSetLimit(limit, value)) };
    let key = context as u64 ^ u64::from(limit + 1) << 56;
    let owner = process.owning_context(context, device);
    let entry = Entry { charge: Charge::NONE, context: owner, extra: [before, 0] };
    process
        .table
        .or_insert(EntryKind::LimitBefore, key, entry)
        .map_err(|_| Status::OUT_OF_MEMORY)?;
    let first = process.table.change(EntryKind::LimitBefore, key, |entry| entry.extra[0]);
    let base = cost(limit, first.unwrap_or(before), device);
    let bytes = move |value: u64| {
        rounded(cost(limit, value, device).saturating_sub(base), PHYSICAL_GRANULE)
    };

    let reserve = Reserve { kind: EntryKind::Limit, key, device };
    reserve.open(owner)?;
    let growth = bytes(value as u64).saturating_sub(reserve.counted());
    let advance = match reserve.advance(growth) {
        Err(Status::OUT_OF_MEMORY) if reclaim::run(device, growth) => reserve.advance(growth),
        answer => answer,
    };
    let advance = advance.inspect_err(|_| account::note_refusal(device))?;
    let status = real::cuCtxSetLimit(limit, value);
    // The driver may have set another value than requested.
    reserve.settle(advance, || current(limit).map(bytes));
    Ok(status)
}

fn current(limit: u32) -> Option<u64> {
    let mut value = 0;
    let status = call::cuCtxGetLimit(Out::to(&mut value), limit);
    status.is_success().then_some(value as u64)
}

/// Bytes that a limit of this value takes.
fn cost(limit: u32, value: u64, device: Device) -> u64 {
    match limit {
        STACK => value.saturating_mul(resident_threads(device)),
        PRINTF | HEAP => value,
        LAUNCH_DEPTH => value.saturating_mul(DEPTH_BYTES),
        PENDING_LAUNCHES => value.saturating_mul(LAUNCH_BYTES),
        _ => 0,
    }
}

/// Maximum resident threads of a GPU: each has a stack.
fn resident_threads(device: Device) -> u64 {
    let attribute = |attribute| {
        let mut value = 0;
        let status = call::cuDeviceGetAttribute(Out::to(&mut value), attribute, device);
        u64::try_from(value).ok().filter(|value| status.is_success() && *value > 0)
    };
    // Values of the largest GPUs, if the driver reports none.
    attribute(MULTIPROCESSORS).unwrap_or(256)
        * attribute(THREADS_PER_MULTIPROCESSOR).unwrap_or(2048)
}

const _: () = assert!(size_of::<Opaque>() == size_of::<u64>());
