//! Plain memory that the guard moves to the host and back. The test is the agent.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use octavo_fake_gpu::{Clock, FakeGpu};
use octavo_guard_abi::lease_page::{Lease, MOVE_BUSY, MOVE_NO_MEMORY, TO_HOST};
use octavo_guard_abi::limits::{PAGES, STRICT};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::agent::{Agent, eventually};
use crate::container::{self, Other};
use crate::cuda::{CONTEXT, Cuda, FIRST_GPU, GIB, MIB, OUT_OF_MEMORY};
use crate::{call, inside, role};

mod attributes;
mod ends;

/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
const CAPTURE_UNSUPPORTED: u32 = 900;

/// The driver of a process whose memory can be moved.
macro_rules! movable {
    () => {
        inside!(8 * GIB, 80 * GIB, PAGES | STRICT)
    };
}

impl Agent {
    /// Asks for a move, waits for its end and returns its status.
    fn moves(&self, to_host: bool) -> u32 {
        let page = self.page.words();
        let number = (page.move_asked.load(Ordering::SeqCst) & !TO_HOST).wrapping_add(2);
        let asked = number | if to_host { TO_HOST } else { 0 };
        page.move_asked.store(asked, Ordering::SeqCst);
        assert!(eventually(|| page.move_done.load(Ordering::SeqCst) == asked));
        page.move_status.load(Ordering::SeqCst)
    }

    fn out(&self) -> u32 {
        self.moves(true)
    }

    fn back(&self) -> u32 {
        self.moves(false)
    }

    /// Bytes that can be moved, and that are on the host.
    fn shown(&self) -> (u64, u64) {
        let page = self.page.words();
        (page.movable_bytes.load(Ordering::SeqCst), page.moved_bytes.load(Ordering::SeqCst))
    }
}

/// Code of the kernel by which a test sees that its page is taken.
const CODE: u64 = 2 * MIB;

/// An allocation with contents that depend on its number.
struct Filled {
    address: u64,
    contents: Vec<u8>,
}

impl Cuda {
    fn used_without_code(&self) -> u64 {
        self.used() - CODE
    }

    fn filled(&self, bytes: u64, number: u8) -> Filled {
        let address = self.allocate(bytes).expect("allocated");
        let pattern = |index: usize| u8::try_from(index % 251).unwrap().wrapping_add(number);
        let contents: Vec<u8> = (0..usize::try_from(bytes).unwrap()).map(pattern).collect();
        let code = call!(self, cuMemcpyHtoD_v2(
            address => u64, contents.as_ptr() => *const u8, bytes => u64));
        assert_eq!(code, 0);
        Filled { address, contents }
    }

    fn unchanged(&self, filled: &Filled) {
        let mut found = vec![0_u8; filled.contents.len()];
        let code = call!(self, cuMemcpyDtoH_v2(
            found.as_mut_ptr() => *mut u8, filled.address => u64, found.len() as u64 => u64));
        assert_eq!(code, 0);
        assert!(found == filled.contents, "the contents at {:x} changed", filled.address);
    }

    fn all_unchanged(&self, all: &[Filled]) {
        for filled in all {
            self.unchanged(filled);
        }
    }

    fn attribute(&self, attribute: u32, address: u64) -> u64 {
        let mut value = 0_u64;
        let code = call!(self, cuPointerGetAttribute(
            &raw mut value => *mut u64, attribute => u32, address => u64));
        assert_eq!(code, 0);
        value
    }

    fn is_plain(&self, address: u64) -> bool {
        /// `CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE`.
        const IPC_CAPABLE: u32 = 10;
        self.attribute(IPC_CAPABLE, address) == 1
    }
}

#[test]
fn contents_and_addresses_are_the_same_afterwards() {
    let cuda = movable!();
    let agent = Agent::with(&cuda, Lease::Free);
    let small = cuda.filled(4096, 7);
    let filled: Vec<_> = [2 * MIB, 5 * MIB + 3, 64 * MIB, MIB + 1]
        .into_iter()
        .zip(0..)
        .map(|(bytes, number)| cuda.filled(bytes, number))
        .collect();
    let all = (2 + 6 + 64 + 2) * MIB;
    assert_eq!((cuda.counted(), cuda.used_without_code()), (all + 2 * MIB, all + 2 * MIB));
    for _ in 0..3 {
        assert!(eventually(|| agent.shown() == (all, 0)));
        assert_eq!(agent.out(), 0);
        assert_eq!(
            (cuda.counted(), cuda.used_without_code()),
            (all + 2 * MIB, 2 * MIB),
            "the slab stays"
        );
        assert_eq!(agent.shown(), (0, all));
        assert_eq!(agent.back(), 0);
        assert_eq!(cuda.used_without_code(), all + 2 * MIB);
        filled.iter().chain([&small]).for_each(|filled| cuda.unchanged(filled));
    }
    for Filled { address, .. } in filled.iter().chain([&small]) {
        assert_eq!(cuda.free(*address), 0);
    }
    assert_eq!((cuda.counted(), cuda.used_without_code()), (0, 0));
    assert_eq!(cuda.free(filled[0].address), 1, "it is freed already");
}

#[test]
fn calls_wait_until_the_memory_is_back() {
    let cuda = movable!();
    let agent = Agent::with(&cuda, Lease::Free);
    let filled = cuda.filled(4 * MIB, 1);
    agent.page.suspend(true);
    assert_eq!(agent.out(), 0);
    let (context, done) = (cuda.context(), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
            cuda.unchanged(&filled);
            done.fetch_add(1, Ordering::SeqCst);
        });
        assert!(eventually(|| agent.work().is_waiting));
        // The agent lets it go on too early.
        agent.page.suspend(false);
        assert!(eventually(|| !agent.work().is_waiting));
        agent.page.suspend(true);
        assert!(eventually(|| agent.work().is_waiting));
        assert_eq!(done.load(Ordering::SeqCst), 0);
        assert_eq!(agent.back(), 0);
        agent.page.suspend(false);
    });
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

#[test]
fn memory_on_the_host_is_freed_there() {
    let cuda = movable!();
    let agent = Agent::with(&cuda, Lease::Free);
    let (kept, freed) = (cuda.filled(4 * MIB, 1), cuda.filled(6 * MIB, 2));
    assert_eq!(agent.out(), 0);
    assert_eq!(cuda.free(freed.address), 0);
    assert_eq!((cuda.counted(), cuda.used_without_code()), (4 * MIB, 0));
    assert_eq!(agent.back(), 0);
    assert_eq!((cuda.counted(), cuda.used_without_code()), (4 * MIB, 4 * MIB));
    cuda.unchanged(&kept);
    assert_eq!(agent.out(), 0);
    assert_eq!(cuda.free(kept.address), 0);
    assert_eq!(agent.back(), 0);
    assert_eq!((cuda.counted(), cuda.used_without_code(), agent.shown()), (0, 0, (0, 0)));
}

#[test]
fn what_the_driver_does_not_move_to_the_host_stays() {
    let cuda = movable!();
    let agent = Agent::with(&cuda, Lease::Free);
    let filled = [cuda.filled(2 * MIB, 1), cuda.filled(6 * MIB, 2)];
    for call in ["cuMemcpyDtoH", "cuMemUnmap", "cuMemRelease", "cuCtxRecordEvent", "cuEventQuery"] {
        cuda.failing(&[(call, 304)]);
        assert_eq!(agent.out(), 304, "{call}");
        cuda.failing(&[]);
        assert_eq!((cuda.counted(), cuda.used_without_code()), (8 * MIB, 8 * MIB), "{call}");
        assert_eq!(agent.shown(), (8 * MIB, 0));
        cuda.all_unchanged(&filled);
    }
    assert_eq!((agent.out(), agent.back()), (0, 0));
    cuda.all_unchanged(&filled);
}

#[test]
fn what_the_driver_does_not_move_back_waits_on_the_host() {
    let cuda = movable!();
    let agent = Agent::with(&cuda, Lease::Free);
    let filled = [cuda.filled(2 * MIB, 1), cuda.filled(6 * MIB, 2)];
    assert_eq!(agent.out(), 0);
    for call in ["cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemcpyHtoD"] {
        cuda.failing(&[(call, OUT_OF_MEMORY)]);
        assert_eq!(agent.back(), OUT_OF_MEMORY, "{call}");
        assert_eq!((cuda.counted(), cuda.used_without_code()), (8 * MIB, 0), "{call}");
        assert_eq!(agent.shown(), (0, 8 * MIB));
    }
    cuda.failing(&[]);
    assert_eq!(agent.back(), 0);
    cuda.all_unchanged(&filled);
}

#[test]
fn what_has_left_comes_back_if_the_rest_finds_no_room() {
    let cuda = movable!();
    let agent = Agent::with(&cuda, Lease::Free);
    let small = cuda.filled(2 * MIB, 1);
    let large = cuda.allocate(4 * GIB).unwrap();
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let mapped = pages.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096;
    let before = getrlimit(Resource::As);
    setrlimit(Resource::As, Rlimit { current: Some(mapped + GIB), ..before }).unwrap();
    assert_eq!(agent.out(), MOVE_NO_MEMORY);
    setrlimit(Resource::As, before).unwrap();
    assert_eq!(
        (cuda.used_without_code(), agent.shown()),
        (4 * GIB + 2 * MIB, (4 * GIB + 2 * MIB, 0))
    );
    cuda.unchanged(&small);
    assert_eq!(cuda.free(large), 0);
}

#[test]
fn what_cannot_be_moved_stays() {
    let cuda = movable!();
    let agent = Agent::with(&cuda, Lease::Free);
    let filled = cuda.filled(8 * MIB, 1);
    let before = cuda.used_without_code();
    cuda.create(4 * MIB, FIRST_GPU).unwrap();
    cuda.array(1024, 1024).unwrap();
    cuda.allocate_async(4 * MIB, None, 0).unwrap();
    assert_eq!(cuda.synchronize(), 0);
    let rest = cuda.used_without_code() - before;
    assert_eq!(agent.out(), 0);
    assert_eq!((cuda.used_without_code(), agent.shown()), (rest, (0, 8 * MIB)));
    assert_eq!(agent.back(), 0);
    cuda.unchanged(&filled);
}

#[test]
fn a_driver_without_mappings_gives_memory_that_stays() {
    let cuda = movable!();
    let agent = Agent::with(&cuda, Lease::Free);
    for call in ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        cuda.failing(&[(call, 801)]);
        let address = cuda.allocate(4 * MIB).unwrap();
        cuda.failing(&[]);
        assert!(cuda.is_plain(address), "{call}");
        assert_eq!(
            (cuda.counted(), cuda.used_without_code(), agent.shown()),
            (4 * MIB, 4 * MIB, (0, 0))
        );
        assert_eq!(agent.out(), 0);
        assert_eq!((cuda.used_without_code(), cuda.free(address)), (4 * MIB, 0));
    }
    assert_eq!((cuda.counted(), cuda.used_without_code()), (0, 0));
}

#[test]
fn memory_ends_with_its_context() {
    let cuda = movable!();
    let agent = Agent::with(&cuda, Lease::Free);
    let (own, mut other) = (cuda.context(), 0_usize);
    let kept = cuda.filled(2 * MIB, 1);
    assert_eq!(call!(cuda, cuCtxCreate_v2(&raw mut other => *mut usize, 0 => u32, 0 => i32)), 0);
    let moved = cuda.filled(6 * MIB, 2);
    assert_eq!((agent.out(), agent.back()), (0, 0));
    cuda.unchanged(&moved);
    assert_eq!(call!(cuda, cuCtxDestroy_v2(other => usize)), 0);
    assert_eq!(call!(cuda, cuCtxSetCurrent(own => usize)), 0);
    assert_eq!((cuda.counted(), cuda.used_without_code()), (2 * MIB, 2 * MIB));
    cuda.unchanged(&kept);
    assert_eq!(call!(cuda, cuDevicePrimaryCtxReset_v2(0 => i32)), 0);
    assert_eq!((container::counted(&cuda.folder), cuda.chip_used()), (0, 0));
    assert!(eventually(|| agent.shown() == (0, 0)));
}

#[test]
fn nothing_moves_while_a_stream_is_captured() {
    let cuda = movable!();
    let agent = Agent::with(&cuda, Lease::Free);
    let filled = cuda.filled(2 * MIB, 1);
    let (stream, mut graph) = (cuda.stream(), 0_usize);
    let begin = || call!(cuda, cuStreamBeginCapture_v2(stream => usize, 0 => u32));
    assert_eq!(begin(), 0);
    assert_eq!(agent.out(), MOVE_BUSY);
    assert_eq!(cuda.free(filled.address), CAPTURE_UNSUPPORTED, "waiting would end the capture");
    assert_eq!(call!(cuda, cuStreamEndCapture(stream => usize, &raw mut graph => *mut usize)), 0);
    assert_eq!((agent.out(), agent.back()), (0, 0));
    assert_eq!(begin(), 0);
    assert_eq!(call!(cuda, cuStreamDestroy_v2(stream => usize)), 0);
    assert_eq!((agent.out(), agent.back()), (0, 0));
    cuda.unchanged(&filled);
}

#[test]
fn memory_waits_for_the_next_agent() {
    let cuda = movable!();
    let agent = Agent::with(&cuda, Lease::Free);
    let filled = cuda.filled(2 * MIB, 1);
    agent.page.suspend(true);
    assert_eq!(agent.out(), 0);
    let (context, done) = (cuda.context(), AtomicU32::new(0));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
            cuda.unchanged(&filled);
            done.fetch_add(1, Ordering::SeqCst);
        });
        assert!(eventually(|| agent.work().is_waiting));
        drop(agent);
        let agent = Agent::accept(&cuda);
        assert!(eventually(|| agent.shown() == (0, 2 * MIB)), "it sees what is on the host");
        assert_eq!(done.load(Ordering::SeqCst), 0);
        assert_eq!(agent.back(), 0);
        waiter.join().unwrap();
    });
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(code: i32) -> !;
}

#[test]
fn a_child_of_a_fork_takes_nothing_from_its_parent() {
    let cuda = movable!();
    let agent = Agent::with(&cuda, Lease::Free);
    let filled = cuda.filled(4 * MIB, 1);
    assert_eq!(agent.out(), 0);
    let child = unsafe { fork() };
    if child == 0 {
        // `CUDA_ERROR_NOT_INITIALIZED`: the driver does not work in a child.
        let code = i32::from(cuda.free(filled.address) != 3);
        unsafe { _exit(code) };
    }
    let mut status = 0;
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!((agent.back(), cuda.used_without_code()), (0, 4 * MIB));
    cuda.unchanged(&filled);
}

#[test]
fn a_process_killed_while_it_moves_leaves_nothing() {
    let container = container::made_with(8 * GIB, 80 * GIB, PAGES | STRICT);
    let used = || {
        let chip = FakeGpu::existing(&container.path().join("driver"), 0, Clock::Virtual);
        chip.expect("a chip").used()
    };
    let other = Other::outside(container.path(), "movable::moves_without_end");
    assert!(used() >= CONTEXT);
    other.kill();
    assert_eq!(used(), 0);
}

#[test]
fn moves_without_end() {
    let cuda = role!();
    let agent = Agent::with(&cuda, Lease::Free);
    let filled: Vec<_> = (0..100).map(|number| cuda.filled(2 * MIB, number)).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            loop {
                assert_eq!((agent.out(), agent.back()), (0, 0));
            }
        });
        assert!(eventually(|| agent.shown().1 > 0));
        cuda.all_unchanged(&filled);
        container::ready("");
    });
}

#[test]
fn a_process_with_several_gpus_moves_nothing() {
    let cuda = inside!(8 * GIB, 80 * GIB, PAGES);
    // Another one, with all GPUs of the machine.
    unsafe { std::env::remove_var(container::VISIBLE) };
    let other = Other::start(&cuda, "movable::has_several_gpus", &[]);
    assert_eq!(other.ready_line, "plain");
}

#[test]
fn has_several_gpus() {
    let cuda = role!();
    let address = cuda.allocate(4 * MIB).unwrap();
    container::ready(if cuda.is_plain(address) { "plain" } else { "movable" });
}

#[test]
fn without_the_flag_memory_is_the_drivers_own() {
    let cuda = inside!(8 * GIB);
    let agent = Agent::with(&cuda, Lease::Free);
    let address = cuda.allocate(4 * MIB).unwrap();
    assert!(cuda.is_plain(address));
    let page = agent.page.words();
    page.move_asked.store(2 | TO_HOST, Ordering::SeqCst);
    assert_eq!(cuda.free(address), 0);
    assert_eq!(page.can_move.load(Ordering::SeqCst), 0);
}
