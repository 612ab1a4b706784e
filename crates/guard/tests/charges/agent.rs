//! The agent of a process, for tests of leases. The test is the agent.

use std::io::Read;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use octavo_guard_abi::lease_page::{Lease, Work};
use octavo_guard_abi::message::{Frame, Kind, LEASE_PAGE, SIZE};
use octavo_lease_page::SharedPage;

use crate::call;
use crate::cuda::Cuda;

/// The agent of this process, with its page.
pub(crate) struct Agent {
    pub(crate) page: SharedPage,
    pub(crate) doorbell: UnixStream,
    pub(crate) stream: UnixStream,
}

/// Time in which something must have happened.
const LIMIT: Duration = Duration::from_secs(30);

/// Whether something becomes so in time.
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

/// Time of the monotonic clock.
pub(crate) fn milliseconds() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec * 1000 + now.tv_nsec / 1_000_000).unwrap()
}

impl Agent {
    /// Listens, and shares a page with this process. It has a lease, which lasts for a minute without the agent.
    pub(crate) fn with(cuda: &Cuda, lease: Lease) -> Self {
        let agent = Self::accept(cuda);
        agent.page.set(lease);
        agent.take_over(cuda);
        agent
    }

    /// Listens, and shares a page with this process, which may not have taken it yet. It has no lease.
    pub(crate) fn accept(cuda: &Cuda) -> Self {
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
        offer.send(&stream).expect("sent");
        Self { page, doorbell: UnixStream::from(doorbell), stream }
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

    pub(crate) fn work(&self) -> Work {
        self.page.words().work()
    }

    pub(crate) fn has_rung(&mut self) -> bool {
        matches!(self.doorbell.read(&mut [0; 64]), Ok(1..))
    }
}

impl Cuda {
    pub(crate) fn kernel(&self, name: &str) -> usize {
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

    pub(crate) fn launch(&self, kernel: usize, stream: usize) -> u32 {
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
    pub(crate) fn launching<'scope>(
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
