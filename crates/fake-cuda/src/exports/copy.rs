//! Copies and fills.

use std::ffi::{c_uchar, c_uint, c_ushort};

use crate::abi::{Copy2d, Copy3d, MemsetParams};
use crate::code::{CallResult, Code};
use crate::execution::stream::{self, Default, STREAMS};
use crate::memory::copy::{self, LinearCopy, Side};
use crate::pointers::In;
use crate::table::Handle;

use Side::{Any, Device, Host};

stream_calls! { SYNC = hot_call;
    fn cuMemcpy, cuMemcpy_ptds(default, to: u64, from: u64, bytes: u64) {
        copy::copy_and_wait(LinearCopy { to: (Any, to), from: (Any, from), bytes }, default)
    }

    fn cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds(default, to: u64, from: u64, bytes: u64) {
        copy::copy_and_wait(LinearCopy { to: (Device, to), from: (Host, from), bytes }, default)
    }

    fn cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds(default, to: u64, from: u64, bytes: u64) {
        copy::copy_and_wait(LinearCopy { to: (Host, to), from: (Device, from), bytes }, default)
    }

    fn cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds(default, to: u64, from: u64, bytes: u64) {
        copy::copy_and_wait(LinearCopy { to: (Device, to), from: (Device, from), bytes }, default)
    }

    fn cuMemcpyPeer, cuMemcpyPeer_ptds(
        default,
        to: u64,
        _to_context: Handle,
        from: u64,
        _from_context: Handle,
        bytes: u64,
    ) {
        copy::copy_and_wait(LinearCopy { to: (Device, to), from: (Device, from), bytes }, default)
    }

    fn cuMemcpy2D_v2, cuMemcpy2D_v2_ptds(default, params: In<Copy2d>) {
        copy_3d_now(&copy::as_3d(&params.read()?), default)
    }

    fn cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds(default, params: In<Copy2d>) {
        copy_3d_now(&copy::as_3d(&params.read()?), default)
    }

    fn cuMemcpy3D_v2, cuMemcpy3D_v2_ptds(default, params: In<Copy3d>) {
        copy_3d_now(&params.read()?, default)
    }

    fn cuMemsetD8_v2, cuMemsetD8_v2_ptds(default, to: u64, value: c_uchar, count: u64) {
        fill(to, 0, value.into(), 1, count, 1, 0, default)
    }

    fn cuMemsetD16_v2, cuMemsetD16_v2_ptds(default, to: u64, value: c_ushort, count: u64) {
        fill(to, 0, value.into(), 2, count, 1, 0, default)
    }

    fn cuMemsetD32_v2, cuMemsetD32_v2_ptds(default, to: u64, value: c_uint, count: u64) {
        fill(to, 0, value, 4, count, 1, 0, default)
    }

    fn cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds(
        default,
        to: u64,
        pitch: u64,
        value: c_uchar,
        width: u64,
        height: u64,
    ) {
        fill(to, pitch, value.into(), 1, width, height, 0, default)
    }

    fn cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds(
        default,
        to: u64,
        pitch: u64,
        value: c_uint,
        width: u64,
        height: u64,
    ) {
        fill(to, pitch, value, 4, width, height, 0, default)
    }
}

stream_calls! { ASYNC = hot_call;
    fn cuMemcpyAsync, cuMemcpyAsync_ptsz(
        default,
        to: u64,
        from: u64,
        bytes: u64,
        stream: Handle,
    ) {
        copy::submit(LinearCopy { to: (Any, to), from: (Any, from), bytes }, stream, default)
    }

    fn cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz(
        default,
        to: u64,
        from: u64,
        bytes: u64,
        stream: Handle,
    ) {
        copy::submit(LinearCopy { to: (Device, to), from: (Host, from), bytes }, stream, default)
    }

    fn cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz(
        default,
        to: u64,
        from: u64,
        bytes: u64,
        stream: Handle,
    ) {
        copy::submit(LinearCopy { to: (Host, to), from: (Device, from), bytes }, stream, default)
    }

    fn cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz(
        default,
        to: u64,
        from: u64,
        bytes: u64,
        stream: Handle,
    ) {
        copy::submit(LinearCopy { to: (Device, to), from: (Device, from), bytes }, stream, default)
    }

    fn cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz(
        default,
        to: u64,
        _to_context: Handle,
        from: u64,
        _from_context: Handle,
        bytes: u64,
        stream: Handle,
    ) {
        copy::submit(LinearCopy { to: (Device, to), from: (Device, from), bytes }, stream, default)
    }

    fn cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz(default, params: In<Copy2d>, stream: Handle) {
        copy::submit_3d(&copy::as_3d(&params.read()?), stream, default)
    }

    fn cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz(default, params: In<Copy3d>, stream: Handle) {
        copy::submit_3d(&params.read()?, stream, default)
    }

    fn cuMemsetD8Async, cuMemsetD8Async_ptsz(
        default,
        to: u64,
        value: c_uchar,
        count: u64,
        stream: Handle,
    ) {
        fill(to, 0, value.into(), 1, count, 1, stream, default)
    }

    fn cuMemsetD16Async, cuMemsetD16Async_ptsz(
        default,
        to: u64,
        value: c_ushort,
        count: u64,
        stream: Handle,
    ) {
        fill(to, 0, value.into(), 2, count, 1, stream, default)
    }

    fn cuMemsetD32Async, cuMemsetD32Async_ptsz(
        default,
        to: u64,
        value: c_uint,
        count: u64,
        stream: Handle,
    ) {
        fill(to, 0, value, 4, count, 1, stream, default)
    }

    fn cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz(
        default,
        to: u64,
        pitch: u64,
        value: c_uchar,
        width: u64,
        height: u64,
        stream: Handle,
    ) {
        fill(to, pitch, value.into(), 1, width, height, stream, default)
    }

    fn cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz(
        default,
        to: u64,
        pitch: u64,
        value: c_uint,
        width: u64,
        height: u64,
        stream: Handle,
    ) {
        fill(to, pitch, value, 4, width, height, stream, default)
    }
}

calls! { PLAIN = hot_call;
    /// The oldest version, with 32-bit addresses.
    fn cuMemcpyHtoD(to: u32, from: u64, bytes: c_uint) {
        let line = LinearCopy { to: (Device, to.into()), from: (Host, from), bytes: bytes.into() };
        copy::copy_and_wait(line, Default::Legacy)
    }

    fn cuMemcpyDtoH(to: u64, from: u32, bytes: c_uint) {
        let line = LinearCopy { to: (Host, to), from: (Device, from.into()), bytes: bytes.into() };
        copy::copy_and_wait(line, Default::Legacy)
    }
}

fn copy_3d_now(params: &Copy3d, default: Default) -> CallResult {
    copy::submit_3d(params, 0, default)?;
    wait(default)
}

fn wait(default: Default) -> CallResult {
    let handle = stream::resolve(0, default)?;
    let (device, tail) = STREAMS.with(handle, |stream| Ok((stream.device()?, stream.tail)))?;
    device.wait(tail)
}

#[expect(clippy::too_many_arguments, reason = "the arguments of the functions above, in one form")]
fn fill(
    to: u64,
    pitch: u64,
    value: u32,
    element: u32,
    width: u64,
    height: u64,
    stream: Handle,
    default: Default,
) -> CallResult {
    let pitch = if height == 1 { width.saturating_mul(element.into()) } else { pitch };
    if height > 1 && pitch == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let params = MemsetParams { to, pitch, value, element, width, height };
    copy::submit_fill(&params, stream, default)
}
