//! Copies and memory sets. They wait while the process's memory is swapped out. Large ones take time of the GPU as a launch does:
//! they need a lease, and are counted in their stream.

use crate::cuda::{Opaque, Pointer, Status};
use crate::leases::{self, wait_while_suspended};
use crate::platform::ffi::In;
use crate::tracking::streams::Stream;

/// Bytes from which on a copy is large. A smaller one takes less time than most kernels, and a program that makes one often waits
/// for it.
const LARGE_BYTES: u64 = 1 << 20;

/// Bytes of a copy that counts as large, whatever it copies. The guard does not read the sizes of these.
const LARGE: u64 = LARGE_BYTES;

/// `CUDA_MEMCPY2D`: its extent follows both sides.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Copy2d {
    _sides: [u64; 14],
    width: u64,
    height: u64,
}

/// `CUDA_MEMCPY3D` and `CUDA_MEMCPY3D_PEER`, likewise.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Copy3d {
    _sides: [u64; 22],
    width: u64,
    height: u64,
    depth: u64,
}

/// Declares hooks in pairs: the function, and that with the per-thread default stream. `in` names the stream, `=` the bytes.
macro_rules! copies {
    ($($name:ident, $per_thread:ident($($argument:ident: $type:ty),*) in $stream:tt = $bytes:expr;)*) => {
        hooks! {
            CUDA, Status;
            $(
                #[doc = concat!("Passes `", stringify!($name), "` on.")]
                fn $name($($argument: $type),*) -> Status {
                    transfer!($stream, legacy, || $bytes, || real::$name($($argument),*))
                }
                #[doc = concat!("Passes `", stringify!($per_thread), "` on.")]
                fn $per_thread($($argument: $type),*) -> Status {
                    transfer!($stream, per_thread, || $bytes, || real::$per_thread($($argument),*))
                }
            )*
        }
    };
}

/// A call that waits for its copy in the default stream, or one in a stream of its own.
macro_rules! transfer {
    (default, $kind:ident, $bytes:expr, $copy:expr) => {
        transfer(Stream::$kind(0), true, $bytes, $copy)
    };
    ($stream:ident, $kind:ident, $bytes:expr, $copy:expr) => {
        transfer(Stream::$kind($stream), false, $bytes, $copy)
    };
}

copies! {
    cuMemcpy, cuMemcpy_ptds(to: Pointer, from: Pointer, bytes: u64) in default = bytes;
    cuMemcpyPeer, cuMemcpyPeer_ptds(
        to: Pointer, to_context: Opaque, from: Pointer, from_context: Opaque, bytes: u64
    ) in default = bytes;
    cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds(to: Pointer, from: Opaque, bytes: u64) in default = bytes;
    cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds(to: Opaque, from: Pointer, bytes: u64) in default = bytes;
    cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds(to: Pointer, from: Pointer, bytes: u64) in default = bytes;
    cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds(to: Opaque, at: u64, from: Pointer, bytes: u64) in default = bytes;
    cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds(to: Pointer, from: Opaque, at: u64, bytes: u64) in default = bytes;
    cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds(to: Opaque, at: u64, from: Opaque, bytes: u64) in default = bytes;
    cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds(to: Opaque, from: Opaque, at: u64, bytes: u64) in default = bytes;
    cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds(
        to: Opaque, to_at: u64, from: Opaque, from_at: u64, bytes: u64
    ) in default = bytes;
    cuMemcpy2D_v2, cuMemcpy2D_v2_ptds(copy: In<Copy2d>) in default = of_2d(copy);
    cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds(copy: In<Copy2d>) in default = of_2d(copy);
    cuMemcpy3D_v2, cuMemcpy3D_v2_ptds(copy: In<Copy3d>) in default = of_3d(copy);
    cuMemcpy3DPeer, cuMemcpy3DPeer_ptds(copy: In<Copy3d>) in default = of_3d(copy);

    cuMemcpyAsync, cuMemcpyAsync_ptsz(to: Pointer, from: Pointer, bytes: u64, stream: Opaque) in stream = bytes;
    cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz(
        to: Pointer, to_context: Opaque, from: Pointer, from_context: Opaque, bytes: u64, stream: Opaque
    ) in stream = bytes;
    cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz(
        to: Pointer, from: Opaque, bytes: u64, stream: Opaque
    ) in stream = bytes;
    cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz(
        to: Opaque, from: Pointer, bytes: u64, stream: Opaque
    ) in stream = bytes;
    cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz(
        to: Pointer, from: Pointer, bytes: u64, stream: Opaque
    ) in stream = bytes;
    cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz(
        to: Opaque, at: u64, from: Opaque, bytes: u64, stream: Opaque
    ) in stream = bytes;
    cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz(
        to: Opaque, from: Opaque, at: u64, bytes: u64, stream: Opaque
    ) in stream = bytes;
    cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz(copy: In<Copy2d>, stream: Opaque) in stream = of_2d(copy);
    cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz(copy: In<Copy3d>, stream: Opaque) in stream = of_3d(copy);
    cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz(copy: In<Copy3d>, stream: Opaque) in stream = of_3d(copy);
    cuMemcpyWithAttributesAsync, cuMemcpyWithAttributesAsync_ptsz(
        to: Pointer, from: Pointer, bytes: u64, attributes: Opaque, stream: Opaque
    ) in stream = bytes;
    cuMemcpy3DWithAttributesAsync, cuMemcpy3DWithAttributesAsync_ptsz(
        copy: Opaque, flags: u64, stream: Opaque
    ) in stream = LARGE;
    cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz(
        to: Opaque, from: Opaque, sizes: In<u64>, count: usize, attributes: Opaque, indices: Opaque,
        attribute_count: usize, failed: Opaque, stream: Opaque
    ) in stream = of_all(sizes, count);
    cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz(
        to: Opaque, from: Opaque, sizes: In<u64>, count: usize, attributes: Opaque, indices: Opaque,
        attribute_count: usize, stream: Opaque
    ) in stream = of_all(sizes, count);
    cuMemcpy3DBatchAsync, cuMemcpy3DBatchAsync_ptsz(
        count: usize, list: Opaque, failed: Opaque, flags: u64, stream: Opaque
    ) in stream = LARGE;
    cuMemcpy3DBatchAsync_v2, cuMemcpy3DBatchAsync_v2_ptsz(
        count: usize, list: Opaque, flags: u64, stream: Opaque
    ) in stream = LARGE;
    cuFabricCpyBatchAsync, cuFabricCpyBatchAsync_ptsz(
        count: usize, list: Opaque, flags: u64, stream: Opaque
    ) in stream = LARGE;
    cuMemBatchDecompressAsync, cuMemBatchDecompressAsync_ptsz(
        list: Opaque, count: usize, flags: u32, failed: Opaque, stream: Opaque
    ) in stream = LARGE;

    cuMemsetD8_v2, cuMemsetD8_v2_ptds(to: Pointer, value: u32, count: u64) in default = count;
    cuMemsetD16_v2, cuMemsetD16_v2_ptds(to: Pointer, value: u32, count: u64) in default = of_area(2, count, 1);
    cuMemsetD32_v2, cuMemsetD32_v2_ptds(to: Pointer, value: u32, count: u64) in default = of_area(4, count, 1);
    cuMemsetD2D8_v2, cuMemsetD2D8_v2_ptds(
        to: Pointer, pitch: u64, value: u32, width: u64, height: u64
    ) in default = of_area(1, width, height);
    cuMemsetD2D16_v2, cuMemsetD2D16_v2_ptds(
        to: Pointer, pitch: u64, value: u32, width: u64, height: u64
    ) in default = of_area(2, width, height);
    cuMemsetD2D32_v2, cuMemsetD2D32_v2_ptds(
        to: Pointer, pitch: u64, value: u32, width: u64, height: u64
    ) in default = of_area(4, width, height);
    cuMemsetD8Async, cuMemsetD8Async_ptsz(to: Pointer, value: u32, count: u64, stream: Opaque) in stream = count;
    cuMemsetD16Async, cuMemsetD16Async_ptsz(
        to: Pointer, value: u32, count: u64, stream: Opaque
    ) in stream = of_area(2, count, 1);
    cuMemsetD32Async, cuMemsetD32Async_ptsz(
        to: Pointer, value: u32, count: u64, stream: Opaque
    ) in stream = of_area(4, count, 1);
    cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz(
        to: Pointer, pitch: u64, value: u32, width: u64, height: u64, stream: Opaque
    ) in stream = of_area(1, width, height);
    cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz(
        to: Pointer, pitch: u64, value: u32, width: u64, height: u64, stream: Opaque
    ) in stream = of_area(2, width, height);
    cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz(
        to: Pointer, pitch: u64, value: u32, width: u64, height: u64, stream: Opaque
    ) in stream = of_area(4, width, height);
}

fn of_2d(copy: In<Copy2d>) -> u64 {
    copy.read().map_or(0, |copy| of_area(1, copy.width, copy.height))
}

fn of_3d(copy: In<Copy3d>) -> u64 {
    copy.read().map_or(0, |copy| of_area(copy.depth, copy.width, copy.height))
}

fn of_area(element: u64, width: u64, height: u64) -> u64 {
    element.saturating_mul(width).saturating_mul(height)
}

/// Bytes of a batch, up to where it is large.
fn of_all(sizes: In<u64>, count: usize) -> u64 {
    let mut sum = 0_u64;
    for index in 0..count {
        sum = sum.saturating_add(sizes.element(index).unwrap_or(0));
        if sum >= LARGE_BYTES {
            break;
        }
    }
    sum
}

/// Calls the driver, with a lease if the copy is large and one is needed. The call may wait for the copy.
#[inline]
fn transfer(
    stream: Stream,
    waits: bool,
    bytes: impl FnOnce() -> u64,
    copy: impl FnOnce() -> Status,
) -> Status {
    wait_while_suspended();
    let Some(leases) = leases::of(stream).filter(|leases| !leases.is_free()) else { return copy() };
    if waits {
        leases.before_wait(stream);
    }
    let inside = if bytes() < LARGE_BYTES { None } else { leases.enter(Some(stream)) };
    let status = copy();
    if let Some(inside) = inside {
        inside.leave_marked(stream, status);
    }
    status
}
