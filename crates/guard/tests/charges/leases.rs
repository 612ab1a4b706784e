//! Leases of GPU time: when a launch waits, and what the agent sees of it. The test is the agent.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use octavo_guard_abi::lease_page::Lease;
use octavo_machine::State;

use crate::agent::{Agent, eventually, milliseconds};
use crate::container;
use crate::cuda::{Cuda, GIB};
use crate::{call, inside};

#[test]
fn a_launch_waits_for_a_lease_and_rings() {
    let cuda = inside!(4 * GIB);
    let mut agent = Agent::with(&cuda, Lease::None);
    let (kernel, done) = (cuda.kernel("kernel"), AtomicU32::new(0));
    thread::scope(|scope| {
        cuda.launching(scope, (kernel, 0), 1, &done);
        assert!(eventually(|| agent.work().is_waiting && agent.has_rung()));
        assert_eq!(done.load(Ordering::SeqCst), 0);
        assert!(!agent.work().is_running);
        agent.page.set(Lease::Capped(4));
        assert!(eventually(|| done.load(Ordering::SeqCst) == 1));
    });
    assert!(!agent.work().is_waiting);
    // Allocations are not work: they need no lease.
    agent.page.set(Lease::None);
    let address = cuda.allocate(1 << 20).expect("allocated");
    assert_eq!(cuda.free(address), 0);
}

/// A host function that blocks its stream until a flag is set.
extern "C" fn holds(flag: &AtomicBool) {
    while !flag.load(Ordering::Acquire) {
        thread::yield_now();
    }
}

/// Checks that a cap of two holds, and that work is seen until it has ended.
fn a_cap_holds(cuda: &Cuda, goes_on: &'static AtomicBool) {
    let mut agent = Agent::with(cuda, Lease::Capped(2));
    let (kernel, done) = (cuda.kernel("kernel"), AtomicU32::new(0));
    let stream = cuda.stream();
    let before = agent.work().completed;
    let code = call!(cuda, cuLaunchHostFunc(
        stream => usize, holds => extern "C" fn(&AtomicBool), goes_on => &AtomicBool));
    assert_eq!(code, 0);
    thread::scope(|scope| {
        cuda.launching(scope, (kernel, stream), 10, &done);
        // The third one waits for room.
        assert!(eventually(|| done.load(Ordering::SeqCst) == 2 && agent.work().is_waiting));
        assert!(agent.work().is_running);
        assert!(!agent.has_rung(), "the agent is not needed for room");
        goes_on.store(true, Ordering::Release);
        assert!(eventually(|| done.load(Ordering::SeqCst) == 10));
    });
    assert_eq!(call!(cuda, cuStreamSynchronize(stream => usize)), 0);
    assert!(eventually(|| !agent.work().is_running));
    assert_eq!(agent.work().completed - before, 10);
}

#[test]
fn no_more_is_in_flight_than_the_cap() {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    a_cap_holds(&inside!(4 * GIB), &GOES_ON);
}

/// From now on the driver answers calls of a function with `CUDA_ERROR_NOT_SUPPORTED`.
fn refuses(cuda: &Cuda, function: &str) {
    let failing_calls = [(function.to_owned(), 801)].into();
    container::becomes(&cuda.folder, &State { failing_calls, ..State::default() });
}

#[test]
fn a_driver_without_stream_writes_marks_by_host_functions() {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    let cuda = inside!(4 * GIB);
    refuses(&cuda, "cuStreamWriteValue64");
    a_cap_holds(&cuda, &GOES_ON);
}

#[test]
fn the_gpu_writes_marks_from_the_context_of_the_page_alone() {
    let cuda = inside!(4 * GIB);
    // A write into the page is the only way to mark.
    refuses(&cuda, "cuLaunchHostFunc");
    let agent = Agent::with(&cuda, Lease::Capped(64));
    let (first, mut other) = (cuda.context(), 0_usize);
    assert_eq!(call!(cuda, cuCtxCreate_v2(&raw mut other => *mut usize, 0 => u32, 0 => i32)), 0);
    let launches = |context: usize| {
        assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
        let (kernel, stream, before) = (cuda.kernel("kernel"), cuda.stream(), agent.work());
        for _ in 0..16 {
            assert_eq!(cuda.launch(kernel, stream), 0);
        }
        assert_eq!(call!(cuda, cuStreamSynchronize(stream => usize)), 0);
        agent.work().completed - before.completed
    };
    // A write of another context would be left when the first one ends, and the page with it.
    assert_eq!(launches(other), 0);
    assert_eq!(launches(first), 16);
}

#[test]
fn a_free_lease_counts_nothing() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::Free);
    let (kernel, before) = (cuda.kernel("kernel"), agent.work());
    for _ in 0..100 {
        assert_eq!(cuda.launch(kernel, 0), 0);
    }
    assert_eq!(agent.work(), before);
}

#[test]
fn what_was_launched_before_the_end_of_a_free_lease_is_seen() {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::Free);
    let (kernel, done, stream) = (cuda.kernel("kernel"), AtomicU32::new(0), cuda.stream());
    let code = call!(cuda, cuLaunchHostFunc(
        stream => usize, holds => extern "C" fn(&AtomicBool), &GOES_ON => &AtomicBool));
    assert_eq!(code, 0);
    for _ in 0..10 {
        assert_eq!(cuda.launch(kernel, stream), 0);
    }
    assert!(!agent.work().is_running, "nothing was counted");
    agent.page.set(Lease::None);
    thread::scope(|scope| {
        cuda.launching(scope, (kernel, stream), 1, &done);
        assert!(eventually(|| agent.work().is_waiting));
        assert!(agent.work().is_running, "the thread that waits has marked its stream");
        GOES_ON.store(true, Ordering::Release);
        assert!(eventually(|| !agent.work().is_running));
        agent.page.set(Lease::Free);
    });
    assert_eq!(done.load(Ordering::SeqCst), 1);
}

#[test]
fn work_that_needs_a_later_launch_is_no_deadlock() {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::Capped(2));
    let (kernel, stream) = (cuda.kernel("kernel"), cuda.stream());
    let code = call!(cuda, cuLaunchHostFunc(
        stream => usize, holds => extern "C" fn(&AtomicBool), &GOES_ON => &AtomicBool));
    assert_eq!(code, 0);
    // The stream is opened by this thread, after more launches than fit under the cap.
    for _ in 0..4 {
        assert_eq!(cuda.launch(kernel, stream), 0);
    }
    GOES_ON.store(true, Ordering::Release);
    assert_eq!(call!(cuda, cuStreamSynchronize(stream => usize)), 0);
    assert!(eventually(|| !agent.work().is_running));
}

#[test]
fn what_is_captured_is_not_in_flight() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::Capped(4));
    let (kernel, stream, mut graph) = (cuda.kernel("kernel"), cuda.stream(), 0_usize);
    let before = agent.work().completed;
    assert_eq!(call!(cuda, cuStreamBeginCapture_v2(stream => usize, 0 => u32)), 0);
    for _ in 0..100 {
        assert_eq!(cuda.launch(kernel, stream), 0);
    }
    assert_eq!(call!(cuda, cuStreamEndCapture(stream => usize, &raw mut graph => *mut usize)), 0);
    assert!(!agent.work().is_running);
    let mut executable = 0_usize;
    let code = call!(cuda, cuGraphInstantiateWithFlags(
        &raw mut executable => *mut usize, graph => usize, 0 => u64));
    assert_eq!(code, 0);
    assert_eq!(call!(cuda, cuGraphLaunch(executable => usize, stream => usize)), 0);
    assert_eq!(call!(cuda, cuStreamSynchronize(stream => usize)), 0);
    assert!(eventually(|| !agent.work().is_running && agent.work().completed > before));
    assert!(agent.work().completed - before <= 2, "the graph was launched once");
}

#[test]
fn many_streams_and_their_ends_leave_nothing_in_flight() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::Capped(16));
    let kernel = cuda.kernel("kernel");
    for _ in 0..20 {
        let streams: Vec<usize> = (0..100).map(|_| cuda.stream()).collect();
        for stream in &streams {
            assert_eq!(cuda.launch(kernel, *stream), 0);
        }
        for stream in streams {
            assert_eq!(call!(cuda, cuStreamDestroy_v2(stream => usize)), 0);
        }
    }
    assert_eq!(cuda.synchronize(), 0);
    assert!(eventually(|| !agent.work().is_running));
}

#[test]
fn without_its_agent_a_process_goes_on() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::None);
    let (kernel, done) = (cuda.kernel("kernel"), AtomicU32::new(0));
    thread::scope(|scope| {
        cuda.launching(scope, (kernel, 0), 1, &done);
        assert!(eventually(|| agent.work().is_waiting));
        drop(agent.stream);
        drop(agent.doorbell);
        assert!(eventually(|| done.load(Ordering::SeqCst) == 1), "the connection is gone");
    });
}

#[test]
fn an_agent_that_hangs_stops_a_process_for_a_limited_time() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::None);
    agent.page.words().opens_at_ms.store(milliseconds() + 100, Ordering::Relaxed);
    let kernel = cuda.kernel("kernel");
    let before = Instant::now();
    assert_eq!(cuda.launch(kernel, 0), 0);
    assert!(before.elapsed() >= Duration::from_secs(1), "{:?}", before.elapsed());
    // Only the first thread waits for it.
    let before = Instant::now();
    for _ in 0..100 {
        assert_eq!(cuda.launch(kernel, 0), 0);
    }
    assert!(before.elapsed() < Duration::from_secs(20), "{:?}", before.elapsed());
    // Once it is back, a lease is needed again.
    agent.page.words().opens_at_ms.store(milliseconds() + 60_000, Ordering::Relaxed);
    let done = AtomicU32::new(0);
    thread::scope(|scope| {
        cuda.launching(scope, (kernel, 0), 1, &done);
        assert!(eventually(|| agent.work().is_waiting));
        agent.page.set(Lease::Capped(4));
    });
    // The stream of the agent is open all the while.
    assert!(agent.stream.peer_addr().is_ok());
}

#[test]
fn a_program_that_closes_all_files_rings_in_no_file_of_its_own() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::None);
    let (kernel, done) = (cuda.kernel("kernel"), AtomicU32::new(0));
    // Files of the guard have high numbers. Each becomes a file of the program.
    let file = std::fs::File::create(cuda.folder.join("own")).expect("a file");
    let kept = [&agent.doorbell, &agent.stream].map(std::os::fd::AsRawFd::as_raw_fd);
    for number in 900..1000 {
        if kept.contains(&number) {
            continue;
        }
        let mut target = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(number) };
        rustix::io::dup2(&file, &mut target).expect("duplicated");
        std::mem::forget(target);
    }
    thread::scope(|scope| {
        cuda.launching(scope, (kernel, 0), 1, &done);
        assert!(eventually(|| done.load(Ordering::SeqCst) == 1), "it no longer has an agent");
    });
    assert_eq!(file.metadata().expect("a file").len(), 0);
}
