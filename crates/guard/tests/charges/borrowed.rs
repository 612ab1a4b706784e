//! Memory of a share that other shares have now: when a process asks for it. The test is the agent.

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;
use std::thread;

use octavo_guard_abi::lease_page::{Lease, MANAGED, SHARED};
use octavo_guard_abi::limits::WITHHELD_OFFSET;
use rustix::thread::futex;

use crate::agent::{Agent, eventually};
use crate::cuda::{Cuda, GIB, MIB, OUT_OF_MEMORY};
use crate::{call, inside};

impl Cuda {
    /// Withholds a part of the limit, as the agent does.
    fn withhold(&self, bytes: u64) {
        let path = self.folder.join("octavo/shares/one/limits");
        let file = std::fs::OpenOptions::new().write(true).open(path).expect("opened");
        file.write_all_at(&bytes.to_ne_bytes(), WITHHELD_OFFSET as u64).expect("written");
    }
}

impl Agent {
    /// Waits for a request, and returns what it needs.
    fn request(&mut self) -> u64 {
        let page = self.page.words();
        assert!(eventually(
            || page.asked.load(Ordering::SeqCst) != page.answered.load(Ordering::SeqCst)
        ));
        let needed = page.needed_bytes.load(Ordering::SeqCst);
        assert!(eventually(|| self.has_rung()));
        needed
    }

    fn answer(&self) {
        let page = self.page.words();
        page.answered.store(page.asked.load(Ordering::SeqCst), Ordering::SeqCst);
        futex::wake(&page.answered, futex::Flags::empty(), 1).expect("woken");
    }

    fn asked(&self) -> u32 {
        self.page.words().asked.load(Ordering::SeqCst)
    }
}

#[test]
fn memory_that_others_have_is_asked_for() {
    let cuda = inside!(4 * GIB);
    let mut agent = Agent::with(&cuda, Lease::Free);
    cuda.withhold(2 * GIB);
    let first = cuda.allocate(GIB).expect("it fits");
    assert_eq!(agent.asked(), 0, "what fits is not asked for");
    let context = cuda.context();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
            cuda.allocate(GIB)
        });
        assert_eq!(agent.request(), GIB);
        assert!(!waits.is_finished());
        cuda.withhold(GIB);
        agent.answer();
        let second = waits.join().expect("ended").expect("given");
        assert_eq!(cuda.free(second), 0);
    });
    assert_eq!(agent.asked(), 1);
    assert_eq!(cuda.free(first), 0);
}

#[test]
fn memory_that_cannot_be_had_is_refused() {
    let cuda = inside!(4 * GIB);
    let mut agent = Agent::with(&cuda, Lease::Free);
    cuda.withhold(3 * GIB);
    let context = cuda.context();
    thread::scope(|scope| {
        let refused = scope.spawn(|| {
            assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
            cuda.allocate(2 * GIB)
        });
        assert_eq!(agent.request(), 2 * GIB);
        agent.answer();
        // Idle memory of its pools is reclaimed first, if it has any; then it asks no more.
        assert_eq!(refused.join().expect("ended"), Err(OUT_OF_MEMORY));
    });
    assert_eq!(agent.asked(), 1);
    // What no agent could give is not asked for.
    assert_eq!(cuda.allocate(5 * GIB), Err(OUT_OF_MEMORY));
    assert_eq!(agent.asked(), 1);
}

#[test]
fn a_process_waits_for_no_agent_that_is_gone() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::Free);
    cuda.withhold(3 * GIB);
    agent.page.words().opens_at_ms.store(1, Ordering::SeqCst);
    assert_eq!(cuda.allocate(2 * GIB), Err(OUT_OF_MEMORY));
    assert_eq!(agent.asked(), 1);
}

/// Runs a call in a thread of its own while the process is suspended, and lets it go on once it is seen to wait.
fn waits<T: Send>(cuda: &Cuda, agent: &mut Agent, call: impl FnOnce() -> T + Send) -> T {
    let context = cuda.context();
    agent.page.suspend(true);
    thread::scope(|scope| {
        let waits = scope.spawn(move || {
            assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
            call()
        });
        assert!(eventually(|| agent.page.words().work().is_waiting));
        assert!(eventually(|| agent.has_rung()));
        assert!(!waits.is_finished());
        agent.page.suspend(false);
        waits.join().expect("ended")
    })
}

#[test]
fn memory_is_neither_taken_nor_freed_while_the_process_is_on_the_host() {
    let cuda = inside!(4 * GIB);
    let mut agent = Agent::with(&cuda, Lease::Free);
    let first = waits(&cuda, &mut agent, || cuda.allocate(GIB)).expect("allocated");
    assert_eq!(waits(&cuda, &mut agent, || cuda.free(first)), 0);
    let mut ordered = 0_u64;
    let place = &raw mut ordered as usize;
    let code = waits(
        &cuda,
        &mut agent,
        || call!(cuda, cuMemAllocAsync(place as *mut u64 => *mut u64, 1 << 20 => usize, 0 => usize)),
    );
    assert_eq!(code, 0);
    let code = waits(&cuda, &mut agent, || call!(cuda, cuMemFreeAsync(ordered => u64, 0 => usize)));
    assert_eq!(code, 0);
    assert!(!agent.page.words().work().is_waiting);
}

#[test]
fn the_whole_limit_is_shown() {
    let cuda = inside!(4 * GIB);
    cuda.withhold(3 * GIB);
    let (mut free, mut total) = (0_usize, 0_usize);
    let code =
        call!(cuda, cuMemGetInfo_v2(&raw mut free => *mut usize, &raw mut total => *mut usize));
    assert_eq!((code, total as u64), (0, 4 * GIB));
    assert!(free as u64 > 3 * GIB, "what others have may be had");
}

#[test]
fn memory_that_cannot_be_moved_is_shown() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::Free);
    let flags = || agent.page.words().unmovable.load(Ordering::SeqCst);
    let plain = cuda.allocate(8 * MIB).expect("allocated");
    assert_eq!(flags(), 0);
    let mut managed = 0_u64;
    let code = call!(cuda, cuMemAllocManaged(
        &raw mut managed => *mut u64, 1 << 20 => usize, 1 => u32));
    assert_eq!((code, flags()), (0, MANAGED));
    let mut handle = [0_u8; 64];
    let code = call!(cuda, cuIpcGetMemHandle(handle.as_mut_ptr() => *mut u8, plain => u64));
    assert_eq!((code, flags()), (0, MANAGED | SHARED));
}
