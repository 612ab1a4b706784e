//! Faults set in the machine's state.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use octavo_machine::{GpuState, KernelFault, KernelState, State};

use crate::call;
use crate::node::{GIB, MIB, Node, OUT_OF_MEMORY};

const ILLEGAL_ADDRESS: u32 = 700;
const UNKNOWN: u32 = 999;

fn faulty(fault: KernelFault) -> GpuState {
    let kernel = KernelState { fault: Some(fault), ..KernelState::default() };
    GpuState { kernels: [("bad".to_owned(), kernel)].into(), ..GpuState::default() }
}

#[test]
fn a_call_fails_as_the_state_says_and_works_again_afterwards() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let calls = [("cuMemAlloc".to_owned(), OUT_OF_MEMORY), ("cuStreamCreate".to_owned(), 304)];
    node.becomes(&State { failing_calls: calls.into(), ..State::default() });
    // Frequent calls see it after the next other call.
    assert_eq!(cuda.synchronize(), 0);
    assert_eq!(cuda.allocate(MIB), Err(OUT_OF_MEMORY));
    let mut stream = 0_usize;
    assert_eq!(call!(cuda, cuStreamCreate(&raw mut stream => *mut usize, 0 => u32)), 304);
    node.becomes(&State::default());
    assert_eq!(cuda.synchronize(), 0);
    assert!(cuda.allocate(MIB).is_ok());
}

#[test]
fn an_illegal_access_breaks_its_context_and_no_other() {
    let node = Node::new("t4");
    node.gpu_becomes(faulty(KernelFault::IllegalAddress));
    let cuda = node.start();
    let (other, broken) = (cuda.context(0), cuda.context(0));
    let kernel = cuda.kernel("bad");
    let stream = cuda.stream();
    assert_eq!(cuda.launch(kernel, stream), 0, "it has not run yet");
    assert_eq!(call!(cuda, cuStreamSynchronize(stream => usize)), ILLEGAL_ADDRESS);
    assert_eq!(cuda.allocate(MIB), Err(ILLEGAL_ADDRESS));
    assert_eq!(cuda.synchronize(), ILLEGAL_ADDRESS);
    assert_eq!(call!(cuda, cuCtxSetCurrent(other => usize)), 0);
    assert_eq!(cuda.synchronize(), 0);
    assert!(cuda.allocate(MIB).is_ok());
    assert_eq!(call!(cuda, cuCtxDestroy_v2(broken => usize)), 0);
}

#[test]
fn a_kernel_that_never_ends_is_waited_for_until_the_gpu_is_lost() {
    let node = Node::new("t4");
    node.gpu_becomes(faulty(KernelFault::NeverEnds));
    let cuda = node.start();
    let context = cuda.context(0);
    let kernel = cuda.kernel("bad");
    assert_eq!(cuda.launch(kernel, 0), 0);
    assert_eq!(call!(cuda, cuStreamQuery(0 => usize)), 600);
    let is_waiting = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
            is_waiting.store(true, SeqCst);
            cuda.synchronize()
        });
        while !is_waiting.load(SeqCst) {
            std::thread::yield_now();
        }
        assert!(cuda.allocate(MIB).is_ok(), "others go on");
        node.gpu_becomes(GpuState { lost: true, ..faulty(KernelFault::NeverEnds) });
        assert_eq!(waiter.join().unwrap(), UNKNOWN);
    });
    assert_eq!(cuda.synchronize(), UNKNOWN);
    node.becomes(&State::default());
}

#[test]
fn a_lost_gpu_answers_nothing_and_the_others_go_on() {
    let node = Node::new("t4");
    let cuda = node.start();
    let (lost, well) = (cuda.context(0), cuda.context(1));
    node.gpu_becomes(GpuState { lost: true, ..GpuState::default() });
    assert_eq!(cuda.synchronize(), 0);
    assert!(cuda.allocate(GIB).is_ok());
    assert_eq!(call!(cuda, cuCtxSetCurrent(lost => usize)), 0);
    assert_eq!(cuda.synchronize(), UNKNOWN);
    assert_eq!(cuda.allocate(GIB), Err(UNKNOWN));
    let mut context = 0_usize;
    let made = call!(cuda, cuCtxCreate_v2(&raw mut context => *mut usize, 0 => u32, 0 => i32));
    assert_eq!(made, UNKNOWN);
    assert_ne!(well, lost);
}
