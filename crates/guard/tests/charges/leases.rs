//! Leases of GPU time: when a launch waits, and what the agent sees of it. The test is the agent.

use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use octavo_guard_abi::lease_page::{Lease, Work};
use octavo_guard_abi::message::{Frame, Kind, LEASE_PAGE, SIZE};
use octavo_lease_page::SharedPage;
use octavo_machine::State;

use crate::container;
use crate::cuda::{Cuda, GIB};
use crate::{call, inside};

/// The agent of this process, with its page.
pub(crate) struct Agent {
    pub(crate) page: SharedPage,
    doorbell: UnixStream,
    stream: UnixStream,
}

/// Time in which something must have happened.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn eventually(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        if Instant::now() > deadline {
            return false;
        }
        thread::yield_now();
    }
    true
}

fn milliseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap()
}

impl Agent {
    /// Listens, and shares a page with this process. It has a lease, which lasts for a minute without the agent.
    pub(crate) fn with(cuda: &Cuda, lease: Lease) -> Self {
        let path = cuda.folder.join("octavo/shares/one/agent.sock");
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(path).expect("a socket");
        let (mut stream, _) = listener.accept().expect("the guard connects");
        let mut hello = [0; SIZE];
        stream.read_exact(&mut hello).expect("a frame");
        let hello = Frame::decode(&hello).expect("valid");
        assert_eq!((hello.kind, hello.text()), (Kind::Hello, LEASE_PAGE));
        let (page, doorbell, offer) = SharedPage::create().expect("a page");
        page.words().opens_at_ms.store(milliseconds() + 60_000, Ordering::Relaxed);
        page.set(lease);
        offer.send(&stream).expect("sent");
        let agent = Self { page, doorbell: UnixStream::from(doorbell), stream };
        agent.take_over(cuda);
        agent
    }

    /// Waits until launches are counted on the page: the guard has mapped it.
    fn take_over(&self, cuda: &Cuda) {
        let before = self.page.words().lease.load(Ordering::Relaxed);
        self.page.set(Lease::Capped(64));
        let kernel = cuda.kernel("first");
        assert!(eventually(|| {
            assert_eq!(cuda.launch(kernel, 0), 0);
            self.page.words().streams.iter().any(|it| it.marked.load(Ordering::Relaxed) > 0)
        }));
        assert_eq!(cuda.synchronize(), 0);
        self.page.words().lease.store(before, Ordering::SeqCst);
    }

    fn work(&self) -> Work {
        self.page.words().work()
    }

    pub(crate) fn has_rung(&mut self) -> bool {
        matches!(self.doorbell.read(&mut [0; 64]), Ok(1..))
    }
}

impl Cuda {
    fn kernel(&self, name: &str) -> usize {
        let (mut module, mut function) = (0_usize, 0_usize);
        let image = [0_u8; 64];
        let name = std::ffi::CString::new(name).unwrap();
        assert_eq!(
            call!(self, cuModuleLoadData(&raw mut module => *mut usize, image.as_ptr() => *const u8)),
            0
        );
        let code = call!(self, cuModuleGetFunction(
            &raw mut function => *mut usize, module => usize, name.as_ptr() => *const std::ffi::c_char));
        assert_eq!(code, 0);
        function
    }

    fn launch(&self, kernel: usize, stream: usize) -> u32 {
        call!(self, cuLaunchKernel(
            kernel => usize, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 1 => u32, 0 => u32,
            stream => usize, 0 => usize, 0 => usize))
    }

    pub(crate) fn context(&self) -> usize {
        let mut context = 0_usize;
        assert_eq!(call!(self, cuCtxGetCurrent(&raw mut context => *mut usize)), 0);
        context
    }

    /// Launches kernels in a thread of its own; `done` counts them.
    fn launching<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        (kernel, stream): (usize, usize),
        count: u32,
        done: &'scope AtomicU32,
    ) -> ScopedJoinHandle<'scope, ()> {
        let context = self.context();
        scope.spawn(move || {
            assert_eq!(call!(self, cuCtxSetCurrent(context => usize)), 0);
            for _ in 0..count {
                assert_eq!(self.launch(kernel, stream), 0);
                done.fetch_add(1, Ordering::SeqCst);
            }
        })
    }
}

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

#[test]
fn a_driver_without_stream_writes_marks_by_host_functions() {
    static GOES_ON: AtomicBool = AtomicBool::new(false);
    let cuda = inside!(4 * GIB);
    let missing_functions = ["cuStreamWriteValue64".to_owned()].into();
    container::becomes(&cuda.folder, &State { missing_functions, ..State::default() });
    a_cap_holds(&cuda, &GOES_ON);
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
