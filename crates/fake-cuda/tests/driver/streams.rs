//! Streams, events and time.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use octavo_machine::{GpuState, KernelState};

use crate::call;
use crate::node::{Cuda, NOT_READY, Node};

impl Cuda {
    pub(crate) fn record(&self, event: usize, stream: usize) {
        assert_eq!(call!(self, cuEventRecord(event => usize, stream => usize)), 0);
    }

    /// Nanoseconds between two events.
    pub(crate) fn elapsed(&self, start: usize, end: usize) -> Result<u64, u32> {
        let mut millis = 0_f32;
        let code = call!(self, cuEventElapsedTime(
            &raw mut millis => *mut f32, start => usize, end => usize));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small and positive"
        )]
        if code == 0 { Ok((millis * 1e6).round() as u64) } else { Err(code) }
    }
}

/// A machine with kernels of these lengths.
fn with_kernels(lengths: &[(&str, u64)]) -> Node {
    let node = Node::new("t4");
    let kernel = |&(name, nanos): &(&str, u64)| {
        (name.to_owned(), KernelState { nanos: Some(nanos), ..KernelState::default() })
    };
    let kernels = lengths.iter().map(kernel).collect();
    node.gpu_becomes(GpuState { kernels, ..GpuState::default() });
    node
}

#[test]
fn events_tell_how_long_kernels_took() {
    let node = with_kernels(&[("short", 1_000), ("long", 500_000)]);
    let cuda = node.ready();
    let (short, long, stream) = (cuda.kernel("short"), cuda.kernel("long"), cuda.stream());
    let events = [(); 3].map(|()| cuda.event());
    cuda.record(events[0], stream);
    assert_eq!(cuda.launch(short, stream), 0);
    cuda.record(events[1], stream);
    assert_eq!(cuda.launch(long, stream), 0);
    assert_eq!(cuda.launch(short, stream), 0);
    cuda.record(events[2], stream);
    assert_eq!(cuda.elapsed(events[0], events[2]), Err(NOT_READY));
    assert_eq!(call!(cuda, cuEventQuery(events[2] => usize)), NOT_READY);
    assert_eq!(call!(cuda, cuEventSynchronize(events[2] => usize)), 0);
    assert_eq!(cuda.elapsed(events[0], events[1]), Ok(1_000));
    assert_eq!(cuda.elapsed(events[1], events[2]), Ok(501_000));
    assert_eq!(call!(cuda, cuEventQuery(events[2] => usize)), 0);
}

#[test]
fn asking_again_and_again_makes_time_pass() {
    let node = with_kernels(&[("k", 50_000)]);
    let cuda = node.ready();
    let (kernel, stream) = (cuda.kernel("k"), cuda.stream());
    assert_eq!(cuda.launch(kernel, stream), 0);
    let mut asked = 0;
    while call!(cuda, cuStreamQuery(stream => usize)) == NOT_READY {
        asked += 1;
        assert!(asked < 1000);
    }
    assert!(asked > 1);
}

#[test]
fn kernels_take_a_time_that_follows_from_name_and_seed() {
    let of = |seed: u64, name: &str| {
        let node = Node::with("t4", |machine| machine.simulation.seed = seed);
        let cuda = node.ready();
        let kernel = cuda.kernel(name);
        let (start, end) = (cuda.event(), cuda.event());
        cuda.record(start, 0);
        assert_eq!(cuda.launch(kernel, 0), 0);
        cuda.record(end, 0);
        assert_eq!(cuda.synchronize(), 0);
        cuda.elapsed(start, end).unwrap()
    };
    let first = of(1, "gemm");
    assert!((2_000..=50_000).contains(&first), "{first}");
    assert_eq!(of(1, "gemm"), first);
    assert_ne!(of(2, "gemm"), first);
    assert_ne!(of(1, "gemv"), first);
}

#[test]
fn a_full_stream_holds_the_program_up_and_loses_nothing() {
    let node = with_kernels(&[("k", 1_000)]);
    let cuda = node.ready();
    let (kernel, stream) = (cuda.kernel("k"), cuda.stream());
    let (start, end) = (cuda.event(), cuda.event());
    cuda.record(start, stream);
    for _ in 0..10_000 {
        assert_eq!(cuda.launch(kernel, stream), 0);
    }
    cuda.record(end, stream);
    assert_eq!(call!(cuda, cuStreamSynchronize(stream => usize)), 0);
    assert_eq!(cuda.elapsed(start, end), Ok(10_000_000));
}

#[test]
fn callbacks_run_when_the_work_before_them_is_done() {
    static ORDER: AtomicU32 = AtomicU32::new(0);
    unsafe extern "C" fn note(digit: *mut c_void) {
        let digit = u32::try_from(digit.addr()).unwrap();
        ORDER.fetch_update(SeqCst, SeqCst, |order| Some(order * 10 + digit)).unwrap();
    }
    let node = with_kernels(&[("k", 10_000)]);
    let cuda = node.ready();
    let (kernel, stream) = (cuda.kernel("k"), cuda.stream());
    for digit in 1..=4_usize {
        assert_eq!(cuda.launch(kernel, stream), 0);
        let code = call!(cuda, cuLaunchHostFunc(
            stream => usize, note => unsafe extern "C" fn(*mut c_void), digit => usize));
        assert_eq!(code, 0);
    }
    assert_eq!(call!(cuda, cuStreamSynchronize(stream => usize)), 0);
    assert_eq!(ORDER.load(SeqCst), 1234);
}

#[test]
fn streams_and_events_that_are_gone_are_refused() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let (stream, event) = (cuda.stream(), cuda.event());
    assert_eq!(call!(cuda, cuStreamDestroy_v2(stream => usize)), 0);
    assert_eq!(call!(cuda, cuStreamSynchronize(stream => usize)), 400);
    assert_eq!(call!(cuda, cuEventRecord(event => usize, stream => usize)), 400);
    assert_eq!(call!(cuda, cuEventDestroy_v2(event => usize)), 0);
    assert_eq!(call!(cuda, cuEventQuery(event => usize)), 400);
    assert_eq!(cuda.launch(1234, 0), 400);
}

#[test]
fn threads_launch_side_by_side() {
    let node = with_kernels(&[("k", 100)]);
    let cuda = node.start();
    let context = cuda.context(0);
    let kernel = cuda.kernel("k");
    let (start, end) = (cuda.event(), cuda.event());
    cuda.record(start, 0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
                let stream = cuda.stream();
                for _ in 0..2_000 {
                    assert_eq!(cuda.launch(kernel, stream), 0);
                }
                assert_eq!(call!(cuda, cuStreamSynchronize(stream => usize)), 0);
            });
        }
    });
    cuda.record(end, 0);
    assert_eq!(cuda.synchronize(), 0);
    assert_eq!(cuda.elapsed(start, end), Ok(800_000));
}
