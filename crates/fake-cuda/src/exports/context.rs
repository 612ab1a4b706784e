//! Contexts.

use std::ffi::{c_int, c_uint};

use crate::attributes::THREADS_PER_MULTIPROCESSOR;
use crate::code::{CallResult, Code};
use crate::context::{self, CONTEXTS, DEFAULT_LIMITS, device_of};
use crate::execution::{event, stream};
use crate::library::{device, driver};
use crate::pointers::Out;
use crate::table::Handle;

calls! { CALLS = call;
    fn cuCtxCreate(handle: Out<Handle>, flags: c_uint, ordinal: c_int) {
        create(handle, flags, ordinal)
    }

    fn cuCtxCreate_v2(handle: Out<Handle>, flags: c_uint, ordinal: c_int) {
        create(handle, flags, ordinal)
    }

    fn cuCtxCreate_v3(
        handle: Out<Handle>,
        _affinities: usize,
        _affinity_count: c_int,
        flags: c_uint,
        ordinal: c_int,
    ) {
        create(handle, flags, ordinal)
    }

    fn cuCtxCreate_v4(handle: Out<Handle>, _params: usize, flags: c_uint, ordinal: c_int) {
        create(handle, flags, ordinal)
    }

    fn cuCtxDestroy(handle: Handle) { destroy(handle) }

    fn cuCtxDestroy_v2(handle: Handle) { destroy(handle) }

    /// A green context is a context with some of the multiprocessors, as described by
    /// `description`.
    fn cuGreenCtxCreate(
        handle: Out<Handle>,
        description: usize,
        ordinal: c_int,
        _flags: c_uint,
    ) {
        handle.check()?;
        if description == 0 {
            return Err(Code::INVALID_VALUE);
        }
        handle.put(context::create(device(ordinal)?, 0, false)?)
    }

    fn cuGreenCtxDestroy(handle: Handle) { context::destroy_green(handle) }

    fn cuCtxFromGreenCtx(answer: Out<Handle>, handle: Handle) {
        CONTEXTS.with(handle, |_| Ok(()))?;
        answer.put(handle)
    }

    fn cuGreenCtxStreamCreate(
        answer: Out<Handle>,
        handle: Handle,
        flags: c_uint,
        priority: c_int,
    ) {
        answer.check()?;
        let device = CONTEXTS.with(handle, |context| Ok(context.device))?;
        answer.put(stream::create(device, handle, flags, priority)?)
    }

    fn cuCtxSynchronize() { context::synchronize(context::current()?) }

    fn cuCtxSynchronize_v2(handle: Handle) { context::synchronize(or_current(handle)?) }

    fn cuCtxRecordEvent(handle: Handle, recorded: Handle) {
        event::record_all(recorded, or_current(handle)?)
    }

    fn cuCtxGetDevice_v2(ordinal: Out<c_int>, handle: Handle) {
        let device = CONTEXTS.with(or_current(handle)?, |context| Ok(context.device))?;
        ordinal.put(c_int::try_from(device).unwrap_or(0))
    }

    fn cuCtxGetApiVersion(handle: Handle, version: Out<c_uint>) {
        let handle = or_current(handle)?;
        let answer = CONTEXTS.with(handle, |context| Ok(context.version));
        version.put(answer.map_err(|_| Code::INVALID_CONTEXT)?)
    }

    fn cuCtxGetFlags(flags: Out<c_uint>) {
        flags.put(CONTEXTS.with(context::current()?, |context| Ok(context.flags))?)
    }

    fn cuCtxSetFlags(flags: c_uint) {
        CONTEXTS.with(context::current()?, |context| {
            context.flags = flags;
            Ok(())
        })
    }

    fn cuCtxGetId(handle: Handle, id: Out<u64>) {
        let handle = or_current(handle)?;
        CONTEXTS.with(handle, |_| Ok(()))?;
        id.put(handle as u64)
    }

    fn cuCtxSetLimit(limit: c_uint, value: u64) { set_limit(limit, value) }

    fn cuCtxGetLimit(value: Out<u64>, limit: c_uint) {
        let limit = number(limit)?;
        value.put(CONTEXTS.with(context::current()?, |context| Ok(context.limits[limit]))?)
    }

    fn cuCtxGetStreamPriorityRange(least: Out<c_int>, greatest: Out<c_int>) {
        context::current()?;
        least.offer(0);
        greatest.offer(-5);
        Ok(())
    }

    fn cuCtxGetCacheConfig(config: Out<c_uint>) {
        context::current()?;
        config.put(0)
    }

    fn cuCtxSetCacheConfig(_config: c_uint) { context::current().map(drop) }

    fn cuCtxResetPersistingL2Cache() { context::current().map(drop) }

    fn cuCtxEnablePeerAccess(peer: Handle, flags: c_uint) {
        let (here, there) = (context::here()?, CONTEXTS.with(peer, |peer| Ok(peer.device))?);
        if flags != 0 || here.ordinal == there {
            return Err(Code::INVALID_VALUE);
        }
        let has_links = driver()?.machine.model.nvlink.is_some();
        if has_links { Ok(()) } else { Err(Code::PEER_ACCESS_UNSUPPORTED) }
    }

    fn cuCtxDisablePeerAccess(peer: Handle) { CONTEXTS.with(peer, |_| Ok(())) }
}

calls! { HOT = hot_call;
    fn cuCtxGetCurrent(handle: Out<Handle>) {
        handle.put(context::current_handle().unwrap_or(0))
    }

    fn cuCtxSetCurrent(handle: Handle) { context::set_current(handle) }

    fn cuCtxPushCurrent(handle: Handle) { context::push(handle) }

    fn cuCtxPushCurrent_v2(handle: Handle) { context::push(handle) }

    fn cuCtxPopCurrent(handle: Out<Handle>) {
        handle.offer(context::pop()?);
        Ok(())
    }

    fn cuCtxPopCurrent_v2(handle: Out<Handle>) {
        handle.offer(context::pop()?);
        Ok(())
    }

    fn cuCtxGetDevice(ordinal: Out<c_int>) {
        ordinal.put(c_int::try_from(context::here()?.ordinal).unwrap_or(0))
    }
}

fn create(handle: Out<Handle>, flags: c_uint, ordinal: c_int) -> CallResult {
    handle.check()?;
    let made = context::create(device(ordinal)?, flags, false)?;
    context::push(made)?;
    handle.put(made)
}

/// Primary contexts are released, not destroyed.
fn destroy(handle: Handle) -> CallResult {
    let is_primary = CONTEXTS.with(handle, |context| Ok(context.is_primary));
    if is_primary.map_err(|_| Code::INVALID_CONTEXT)? {
        return Err(Code::INVALID_CONTEXT);
    }
    if context::current_handle() == Some(handle) {
        context::pop()?;
    }
    context::destroy(handle)
}

fn or_current(handle: Handle) -> Result<Handle, Code> {
    if handle == 0 { context::current() } else { Ok(handle) }
}

fn number(limit: c_uint) -> Result<usize, Code> {
    let known = DEFAULT_LIMITS.len() - 1;
    usize::try_from(limit).ok().filter(|limit| *limit < known).ok_or(Code::UNSUPPORTED_LIMIT)
}

/// Stacks, the `printf` buffer and the device heap take memory. Their defaults are part of the
/// context's memory.
fn set_limit(limit: c_uint, value: u64) -> CallResult {
    let limit = number(limit)?;
    let handle = context::current()?;
    let threads = u64::from(driver()?.machine.model.multiprocessors) * THREADS_PER_MULTIPROCESSOR;
    let each = match limit {
        0 => threads,
        1 | 2 => 1,
        _ => 0,
    };
    CONTEXTS.with(handle, |context| {
        let device = device_of(context.device)?;
        let more = |value: u64| {
            let above = value.saturating_sub(DEFAULT_LIMITS[limit]);
            above.checked_mul(each).ok_or(Code::INVALID_VALUE)
        };
        let (before, after) = (more(context.limits[limit])?, more(value)?);
        if after > before {
            device.charge(after - before)?;
        } else {
            device.refund(before - after);
        }
        context.bytes = context.bytes - before + after;
        context.limits[limit] = value;
        Ok(())
    })
}
