//! Moves, and the end of work, of calls and of contexts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use octavo_guard_abi::lease_page::{Lease, MOVE_BUSY};
use octavo_guard_abi::limits::{PAGES, STRICT};

use crate::agent::{Agent, eventually};
use crate::cuda::{GIB, MIB, OUT_OF_MEMORY};
use crate::{call, inside};

/// A host function that blocks its stream until a flag is set.
extern "C" fn holds(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        thread::yield_now();
    }
}

#[test]
fn work_that_waits_for_a_call_keeps_memory_on_the_gpu() {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    let cuda = inside!(8 * GIB, 80 * GIB, PAGES | STRICT);
    let agent = Agent::with(&cuda, Lease::Free);
    let filled = cuda.filled(2 * MIB, 1);
    let (stream, context) = (cuda.stream(), cuda.context());
    let code = call!(cuda, cuLaunchHostFunc(
        stream => usize, holds => extern "C" fn(&AtomicBool), &GOES_ON => &AtomicBool));
    assert_eq!(code, 0);
    agent.page.suspend(true);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
            cuda.unchanged(&filled);
            GOES_ON.store(true, Ordering::Release);
        });
        assert!(eventually(|| agent.work().is_waiting));
        assert_eq!(
            agent.out(),
            MOVE_BUSY,
            "the call waits for the move, and the work for the call"
        );
        assert_eq!(agent.shown(), (2 * MIB, 0));
        agent.page.suspend(false);
    });
    assert_eq!((agent.out(), agent.back()), (0, 0));
    cuda.unchanged(&filled);
}

#[test]
fn without_an_event_of_a_context_the_driver_waits_for_it() {
    let cuda = inside!(8 * GIB, 80 * GIB, PAGES | STRICT);
    let agent = Agent::with(&cuda, Lease::Free);
    let filled = cuda.filled(2 * MIB, 1);
    cuda.failing(&[("cuCtxRecordEvent", 500), ("cuCtxSynchronize", 304)]);
    assert_eq!(agent.out(), 304);
    for event in [("cuCtxRecordEvent", 500), ("cuEventCreate", OUT_OF_MEMORY)] {
        cuda.failing(&[event]);
        assert_eq!((agent.out(), agent.back()), (0, 0), "{event:?}");
    }
    cuda.failing(&[]);
    cuda.unchanged(&filled);
}

#[test]
fn a_context_ends_while_memory_moves() {
    let cuda = inside!(8 * GIB, 80 * GIB, PAGES | STRICT);
    let agent = Agent::with(&cuda, Lease::Free);
    let kept = cuda.filled(2 * MIB, 1);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                let mut context = 0_usize;
                let code = call!(cuda, cuCtxCreate_v2(
                    &raw mut context => *mut usize, 0 => u32, 0 => i32));
                assert_eq!(code, 0);
                for _ in 0..64 {
                    cuda.allocate(2 * MIB).unwrap();
                }
                assert_eq!(call!(cuda, cuCtxDestroy_v2(context => usize)), 0);
            }
        });
        // A scope ends only with its thread.
        let moved = (0..60).map(|_| (agent.out(), agent.back())).find(|moved| *moved != (0, 0));
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(moved, None);
    });
    assert!(eventually(|| agent.shown() == (2 * MIB, 0)), "{:?}", agent.shown());
    cuda.unchanged(&kept);
}

#[test]
fn each_piece_of_a_copy_is_progress() {
    let cuda = inside!(8 * GIB, 80 * GIB, PAGES | STRICT);
    let agent = Agent::with(&cuda, Lease::Free);
    cuda.allocate(258 * MIB).unwrap();
    let progress = || agent.page.words().move_progress.load(Ordering::SeqCst);
    assert_eq!((agent.out(), progress()), (0, 2));
    assert_eq!((agent.back(), progress()), (0, 4));
}
