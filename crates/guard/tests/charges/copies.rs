//! Copies and memory sets: large ones need a lease of GPU time, small ones do not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use octavo_guard_abi::lease_page::Lease;

use crate::agent::{Agent, eventually};
use crate::cuda::{Cuda, GIB, MIB};
use crate::{call, inside};

/// Places of copies, and a stream.
#[derive(Clone, Copy)]
struct Places {
    to: u64,
    from: u64,
    host: u64,
    stream: usize,
}

/// `CUDA_MEMCPY3D` between two places on the GPU; the first 16 words serve for `CUDA_MEMCPY2D`, too.
fn box_of(places: Places, bytes: u64, is_flat: bool) -> [u64; 25] {
    /// `CU_MEMORYTYPE_DEVICE`.
    const DEVICE: u64 = 2;
    let mut words = [0; 25];
    let (width, height) = (1024, bytes / 1024);
    if is_flat {
        (words[2], words[4], words[6]) = (DEVICE, places.from, width);
        (words[9], words[11], words[13]) = (DEVICE, places.to, width);
        (words[14], words[15]) = (width, height);
    } else {
        (words[4], words[6], words[9], words[10]) = (DEVICE, places.from, width, height);
        (words[15], words[17], words[20], words[21]) = (DEVICE, places.to, width, height);
        (words[22], words[23], words[24]) = (width, height, 1);
    }
    words
}

type Call = fn(&Cuda, Places, u64) -> u32;

/// Each way to give the size.
const CALLS: [(&str, Call); 13] = [
    (
        "cuMemcpy",
        |cuda, it, bytes| call!(cuda, cuMemcpy(it.to => u64, it.from => u64, bytes => u64)),
    ),
    (
        "cuMemcpyHtoD",
        |cuda, it, bytes| call!(cuda, cuMemcpyHtoD_v2(it.to => u64, it.host => u64, bytes => u64)),
    ),
    (
        "cuMemcpyDtoH_ptds",
        |cuda, it, bytes| call!(cuda, cuMemcpyDtoH_v2_ptds(it.host => u64, it.from => u64, bytes => u64)),
    ),
    ("cuMemcpyPeer", |cuda, it, bytes| {
        let context = cuda.context();
        call!(cuda, cuMemcpyPeer(it.to => u64, context => usize, it.from => u64, context => usize, bytes => u64))
    }),
    (
        "cuMemcpyAsync",
        |cuda, it, bytes| call!(cuda, cuMemcpyAsync(it.to => u64, it.from => u64, bytes => u64, it.stream => usize)),
    ),
    (
        "cuMemcpyDtoDAsync_ptsz",
        |cuda, it, bytes| call!(cuda, cuMemcpyDtoDAsync_v2_ptsz(it.to => u64, it.from => u64, bytes => u64, it.stream => usize)),
    ),
    ("cuMemcpy2D", |cuda, it, bytes| {
        let copy = box_of(it, bytes, true);
        call!(cuda, cuMemcpy2D_v2(copy.as_ptr() => *const u64))
    }),
    ("cuMemcpy2DAsync", |cuda, it, bytes| {
        let copy = box_of(it, bytes, true);
        call!(cuda, cuMemcpy2DAsync_v2(copy.as_ptr() => *const u64, it.stream => usize))
    }),
    ("cuMemcpy3DAsync", |cuda, it, bytes| {
        let copy = box_of(it, bytes, false);
        call!(cuda, cuMemcpy3DAsync_v2(copy.as_ptr() => *const u64, it.stream => usize))
    }),
    (
        "cuMemsetD8",
        |cuda, it, bytes| call!(cuda, cuMemsetD8_v2(it.to => u64, 7 => u8, bytes => u64)),
    ),
    (
        "cuMemsetD16Async",
        |cuda, it, bytes| call!(cuda, cuMemsetD16Async(it.to => u64, 7 => u16, bytes / 2 => u64, it.stream => usize)),
    ),
    (
        "cuMemsetD32",
        |cuda, it, bytes| call!(cuda, cuMemsetD32_v2(it.to => u64, 7 => u32, bytes / 4 => u64)),
    ),
    ("cuMemsetD2D32Async", |cuda, it, bytes| {
        call!(cuda, cuMemsetD2D32Async(
            it.to => u64, 1024 => u64, 7 => u32, 256 => u64, bytes / 1024 => u64, it.stream => usize))
    }),
];

fn places(cuda: &Cuda, host: &mut Vec<u8>) -> Places {
    host.resize(64 << 20, 0);
    Places {
        to: cuda.allocate(64 * MIB).expect("allocated"),
        from: cuda.allocate(64 * MIB).expect("allocated"),
        host: host.as_mut_ptr().expose_provenance() as u64,
        stream: cuda.stream(),
    }
}

/// Runs a copy in another thread, and says whether it has waited until there was a lease.
fn waits(cuda: &Cuda, agent: &Agent, copy: &(dyn Fn() -> u32 + Sync)) -> bool {
    agent.page.set(Lease::None);
    let (context, is_done) = (cuda.context(), AtomicBool::new(false));
    let mut has_waited = false;
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
            assert_eq!(copy(), 0);
            is_done.store(true, Ordering::SeqCst);
        });
        let is_over = || {
            has_waited |= agent.work().is_waiting;
            has_waited || is_done.load(Ordering::SeqCst)
        };
        assert!(eventually(is_over));
        assert_ne!(has_waited, is_done.load(Ordering::SeqCst));
        agent.page.set(Lease::Capped(4));
    });
    has_waited
}

#[test]
fn a_large_copy_waits_for_a_lease_and_a_small_one_does_not() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::Capped(4));
    let mut host = Vec::new();
    let places = places(&cuda, &mut host);
    for (name, copy) in CALLS {
        for (bytes, expected) in [(64 * MIB, true), (MIB, true), (MIB - 1024, false), (4096, false)]
        {
            let has_waited = waits(&cuda, &agent, &|| copy(&cuda, places, bytes));
            assert_eq!(has_waited, expected, "{name} of {bytes} bytes");
            assert_eq!(call!(cuda, cuStreamSynchronize(places.stream => usize)), 0);
        }
    }
    assert!(eventually(|| !agent.work().is_running));
}

#[test]
fn a_large_copy_is_marked_at_once() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::Capped(64));
    let mut host = Vec::new();
    let places = places(&cuda, &mut host);
    let stream = places.stream;
    let copy = |bytes: u64| {
        let code = call!(cuda, cuMemcpyDtoDAsync_v2(
            places.to => u64, places.from => u64, bytes => u64, stream => usize));
        assert_eq!(code, 0);
    };
    let before = agent.work().completed;
    (0..3).for_each(|_| copy(64 * MIB));
    // Nothing waits for the stream: only marks show it.
    assert!(eventually(|| agent.work().completed - before == 3));
    copy(4096);
    assert_eq!(call!(cuda, cuStreamSynchronize(stream => usize)), 0);
    assert_eq!(agent.work().completed - before, 3, "a small one is not counted");
}

#[test]
fn a_copy_that_fails_is_not_in_flight() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::Capped(64));
    let before = agent.work();
    assert_ne!(
        call!(cuda, cuMemcpyDtoDAsync_v2(0 => u64, 0 => u64, 64 * MIB => u64, 0 => usize)),
        0
    );
    assert_eq!(agent.work(), before);
}
