//! Copies and fills.

use crate::abi::{Copy2d, Copy3d, End2d, End3d, MemsetParams};
use crate::code::{CallResult, Code};
use crate::context;
use crate::execution::callbacks;
use crate::execution::capture;
use crate::execution::graph::Op;
use crate::execution::stream::{self, Default, STREAMS};
use crate::library;
use crate::memory::arena;
use crate::memory::arrays;
use crate::memory::fabric;
use crate::memory::heap;
use crate::memory::mappings;
use crate::memory::weak;
use crate::table::Handle;

/// Location of one end of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Host,
    Device,
    /// Determined from the address.
    Any,
}

/// Memory types in copy parameters (`CUmemorytype`).
mod memory {
    pub(super) const HOST: u32 = 1;
    pub(super) const DEVICE: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const UNIFIED: u32 = 4;
}

/// A one-dimensional copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinearCopy {
    pub(crate) to: (Side, u64),
    pub(crate) from: (Side, u64),
    pub(crate) bytes: u64,
}

impl LinearCopy {
    fn check(&self) -> CallResult {
        check(self.to, self.bytes)?;
        check(self.from, self.bytes)
    }

    /// The same copy as parameters of a node.
    fn as_params(&self) -> Copy3d {
        let end = |(_, address): (Side, u64)| End3d {
            x: 0,
            y: 0,
            z: 0,
            level: 0,
            kind: memory::UNIFIED,
            host: 0,
            device: address,
            array: 0,
            reserved: 0,
            pitch: self.bytes,
            height: 1,
        };
        Copy3d { from: end(self.from), to: end(self.to), width: self.bytes, height: 1, depth: 1 }
    }
}

/// Copies, and waits until the copy is done.
pub(crate) fn copy_and_wait(line: LinearCopy, default: Default) -> CallResult {
    submit(line, 0, default)?;
    if let Some(device) = context::current_device() {
        let handle = stream::resolve(0, default)?;
        device.wait(STREAMS.with(handle, |stream| Ok(stream.tail))?)?;
    }
    context::check_fault("cuMemcpy")
}

/// Copies in stream order.
pub(crate) fn submit(line: LinearCopy, argument: Handle, default: Default) -> CallResult {
    context::current()?;
    line.check()?;
    let handle = stream::resolve(argument, default)?;
    if capture::is_capturing(handle)? {
        return capture::add(handle, Op::Copy(line.as_params()));
    }
    copy_3d(&line.as_params(), handle)
}

/// Copies in three dimensions, in stream order.
pub(crate) fn submit_3d(params: &Copy3d, argument: Handle, default: Default) -> CallResult {
    context::current()?;
    let handle = stream::resolve(argument, default)?;
    if capture::is_capturing(handle)? {
        return capture::add(handle, Op::Copy(*params));
    }
    copy_3d(params, handle)
}

/// Fills memory in stream order.
pub(crate) fn submit_fill(params: &MemsetParams, argument: Handle, default: Default) -> CallResult {
    context::current()?;
    check_fill(params)?;
    let handle = stream::resolve(argument, default)?;
    if capture::is_capturing(handle)? {
        return capture::add(handle, Op::Fill(*params));
    }
    fill(params, handle)
}

/// Converts a two-dimensional copy to a three-dimensional one.
pub(crate) fn as_3d(copy: &Copy2d) -> Copy3d {
    let end = |end: End2d| End3d {
        x: end.x,
        y: end.y,
        z: 0,
        level: 0,
        kind: end.kind,
        host: end.host,
        device: end.device,
        array: end.array,
        reserved: 0,
        pitch: end.pitch,
        height: 0,
    };
    let (width, height) = (copy.width, copy.height);
    Copy3d { from: end(copy.from), to: end(copy.to), width, height, depth: 1 }
}

/// Copies at once. The stream must not be captured.
pub(crate) fn copy_3d(params: &Copy3d, handle: Handle) -> CallResult {
    let Copy3d { width, height, depth, .. } = *params;
    let (to, from) = (resolve(&params.to, params)?, resolve(&params.from, params)?);
    let bytes = width.saturating_mul(height).saturating_mul(depth);
    account(handle, library::driver()?.copy_nanos(bytes))?;
    if bytes == 0 {
        return Ok(());
    }
    for side in [&to, &from] {
        let last = side.at(height - 1, depth - 1) + width - side.start;
        check((side.side, side.start), last)?;
    }
    if to.side != Side::Host && heap::find(to.start).is_some_and(|range| range.device.is_some()) {
        let last = to.at(height - 1, depth - 1) + width;
        heap::touch(to.start, last - to.start);
    }
    let weak = weak::addresses();
    let is_one_piece = to.pitch == width && from.pitch == width && depth == 1;
    if is_one_piece {
        arena::copy(to.start, from.start, bytes);
        weak::flip(&weak, to.start, bytes);
        return Ok(());
    }
    for z in 0..depth {
        for y in 0..height {
            arena::copy(to.at(y, z), from.at(y, z), width);
            weak::flip(&weak, to.at(y, z), width);
        }
    }
    Ok(())
}

/// Fills memory at once. The stream must not be captured.
pub(crate) fn fill(params: &MemsetParams, handle: Handle) -> CallResult {
    check_fill(params)?;
    let MemsetParams { to, pitch, value, element, width, height } = *params;
    let width_bytes = width * u64::from(element);
    account(handle, library::driver()?.copy_nanos(width_bytes.saturating_mul(height)) / 64)?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    let weak = weak::addresses();
    for row in 0..height {
        let start = to + row * pitch;
        // Memory that is zero already takes no host memory.
        if value != 0 {
            heap::touch(start, width_bytes);
        }
        arena::fill(start, value, element.into(), width);
        weak::flip(&weak, start, width_bytes);
    }
    Ok(())
}

/// Waits for a stream's callbacks, and submits the time of the work.
fn account(handle: Handle, nanos: u64) -> CallResult {
    let count = STREAMS.with(handle, |stream| {
        stream.submit(nanos)?;
        Ok(stream.callbacks)
    })?;
    callbacks::wait(handle, count);
    Ok(())
}

fn check_fill(params: &MemsetParams) -> CallResult {
    let MemsetParams { to, pitch, element, width, height, .. } = *params;
    if ![1, 2, 4].contains(&element) || !to.is_multiple_of(element.into()) {
        return Err(Code::INVALID_VALUE);
    }
    let row = width.checked_mul(element.into()).ok_or(Code::INVALID_VALUE)?;
    if row == 0 || height == 0 {
        return Ok(());
    }
    if height > 1 && pitch < row {
        return Err(Code::INVALID_VALUE);
    }
    let all = pitch.checked_mul(height - 1).and_then(|above| above.checked_add(row));
    check((Side::Device, to), all.ok_or(Code::INVALID_VALUE)?)
}

/// Fails unless the range is allocated. Only host memory known to the library can be checked.
fn check((side, address): (Side, u64), bytes: u64) -> CallResult {
    if bytes == 0 || side == Side::Host {
        return Ok(());
    }
    if fabric::has_imported() {
        mappings::check_reachable(address)?;
    }
    match heap::find(address) {
        Some(range) if bytes <= range.size - (address - range.start) => Ok(()),
        None if side == Side::Any && address != 0 => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// One end of a copy, by rows.
struct Rows {
    side: Side,
    start: u64,
    pitch: u64,
    slice: u64,
}

impl Rows {
    fn at(&self, row: u64, slice: u64) -> u64 {
        self.start + row * self.pitch + slice * self.slice
    }
}

fn resolve(end: &End3d, params: &Copy3d) -> Result<Rows, Code> {
    let (side, base, pitch, rows) = match end.kind {
        memory::HOST => (Side::Host, end.host, end.pitch, end.height),
        memory::DEVICE => (Side::Device, end.device, end.pitch, end.height),
        memory::UNIFIED => (Side::Any, end.device, end.pitch, end.height),
        memory::ARRAY => {
            let array = arrays::place(end.array)?;
            (Side::Device, array.address, array.pitch, array.rows)
        }
        _ => return Err(Code::INVALID_VALUE),
    };
    let pitch = if pitch == 0 { params.width } else { pitch };
    let rows = if rows == 0 { params.height } else { rows };
    if base == 0 || (params.height > 1 && pitch < params.width) {
        return Err(Code::INVALID_VALUE);
    }
    let slice = pitch.checked_mul(rows).ok_or(Code::INVALID_VALUE)?;
    let start = base + end.z * slice + end.y * pitch + end.x;
    Ok(Rows { side, start, pitch, slice })
}
