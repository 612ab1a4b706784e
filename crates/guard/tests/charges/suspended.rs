//! Calls that wait while the memory of their process is swapped out.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use libloading::os::unix::Library;
use octavo_guard_abi::lease_page::Lease;

use crate::agent::{Agent, eventually};
use crate::cuda::{Cuda, GIB};
use crate::{call, inside};

/// How the names of functions begin that touch memory of the GPU, or add to its work.
const BEGINNINGS: [&str; 42] = [
    "cuMemcpy",
    "cuMemset",
    "cuMemPrefetch",
    "cuMemAdvise",
    "cuMemDiscard",
    "cuMemBatchDecompress",
    "cuFabricCpy",
    "cuStreamBatchMemOp",
    "cuStreamWriteValue",
    "cuStreamWaitValue",
    "cuStreamWaitEvent",
    "cuStreamSynchronize",
    "cuStreamQuery",
    "cuStreamCreate",
    "cuStreamDestroy",
    "cuStreamAddCallback",
    "cuStreamAttachMem",
    "cuEvent",
    "cuCtxSynchronize",
    "cuCtxRecordEvent",
    "cuCtxWaitEvent",
    "cuGraphUpload",
    "cuGraphInstantiate",
    "cuGraphExec",
    "cuGraphAddMemcpy",
    "cuGraphAddMemset",
    "cuGraphAddBatchMemOp",
    "cuGraphAddNode",
    "cuGraphMemcpyNode",
    "cuGraphMemsetNode",
    "cuGraphBatchMemOp",
    "cuGraphNodeSetParams",
    "cuTexObjectCreate",
    "cuTexRefSetAddress",
    "cuPointerSetAttribute",
    "cuMemSetAccess",
    "cuLaunchHostFunc",
    "cuModule",
    "cuLibrary",
    "cuKernelGetFunction",
    "cuMemHost",
    "cuGraphics",
];

fn is_meant(name: &str) -> bool {
    BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// A function that takes words.
type Words =
    unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize, usize) -> u32;

extern "C" fn nothing() {}

/// Calls a function with zeros, which the driver answers with an error, or by doing nothing. A callback is a function.
fn call_with_zeros(name: &str, address: usize) {
    let function: Words = unsafe { std::mem::transmute(address) };
    let is_callback =
        name.starts_with("cuLaunchHostFunc") || name.starts_with("cuStreamAddCallback");
    let second = if is_callback { (nothing as *const ()).expose_provenance() } else { 0 };
    unsafe { function(0, second, 0, 0, 0, 0, 0, 0, 0) };
}

/// Checks that calls of all functions wait while the page is suspended, and go on afterwards.
fn all_wait(cuda: &Cuda, agent: &mut Agent, functions: &[(String, usize)]) {
    let words = |agent: &Agent| agent.page.words().waiting.load(Ordering::SeqCst);
    let (context, done) = (cuda.context(), AtomicU32::new(0));
    agent.page.words().suspended.store(1, Ordering::SeqCst);
    thread::scope(|scope| {
        for (name, address) in functions {
            let done = &done;
            scope.spawn(move || {
                assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
                call_with_zeros(name, *address);
                done.fetch_add(1, Ordering::SeqCst);
            });
        }
        let count = u32::try_from(functions.len()).unwrap();
        assert!(eventually(|| words(agent) == count || done.load(Ordering::SeqCst) > 0));
        assert_eq!((words(agent), done.load(Ordering::SeqCst)), (count, 0));
        assert!(agent.has_rung());
        agent.page.words().suspended.store(0, Ordering::SeqCst);
    });
    assert_eq!(words(agent), 0);
}

#[test]
fn each_call_that_touches_memory_waits_by_its_symbol() {
    let cuda = inside!(4 * GIB);
    let mut agent = Agent::with(&cuda, Lease::Free);
    let program = Library::this();
    let functions: Vec<_> = octavo_guard::CUDA_HOOKS
        .iter()
        .filter(|name| is_meant(name))
        .map(|name| {
            let symbol = unsafe { program.get::<Words>(name.as_bytes()) }.expect(name);
            ((*name).to_owned(), (*symbol as *const ()).expose_provenance())
        })
        .collect();
    assert!(functions.len() > 210, "{}", functions.len());
    for part in functions.chunks(64) {
        all_wait(&cuda, &mut agent, part);
    }
}

#[test]
fn each_call_that_touches_memory_waits_if_it_was_looked_up() {
    let cuda = inside!(4 * GIB);
    let mut agent = Agent::with(&cuda, Lease::Free);
    let (mut functions, mut known) = (Vec::new(), BTreeSet::new());
    for name in octavo_guard::CUDA_HOOKS.iter().filter(|name| is_meant(name)) {
        let name = octavo_guard_abi::names::base(name.as_bytes());
        let text = CString::new(name).unwrap();
        for version in [2000, 7000, 11000, 12000, 12080, 13000, 13050] {
            for flags in [1_u64, 2] {
                let (mut address, mut found) = (0_usize, 0_u32);
                let code = call!(cuda, cuGetProcAddress_v2(
                    text.as_ptr() => *const std::ffi::c_char, &raw mut address => *mut usize,
                    version => i32, flags => u64, &raw mut found => *mut u32));
                if code == 0 && address != 0 && known.insert(address) {
                    functions.push((String::from_utf8_lossy(name).into_owned(), address));
                }
            }
        }
    }
    assert!(functions.len() > 100, "{}", functions.len());
    for part in functions.chunks(64) {
        all_wait(&cuda, &mut agent, part);
    }
}

#[test]
fn an_agent_that_is_gone_stops_no_call() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::Free);
    let address = cuda.allocate(4096).expect("allocated");
    agent.page.words().suspended.store(1, Ordering::SeqCst);
    let (context, done) = (cuda.context(), AtomicU32::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
            assert_eq!(call!(cuda, cuMemsetD8_v2(address => u64, 0 => u8, 4096 => u64)), 0);
            done.fetch_add(1, Ordering::SeqCst);
        });
        assert!(eventually(|| agent.work().is_waiting));
        assert_eq!(done.load(Ordering::SeqCst), 0);
        drop(agent.stream);
        drop(agent.doorbell);
        assert!(eventually(|| done.load(Ordering::SeqCst) == 1), "the connection is gone");
    });
}

#[test]
fn an_agent_that_hangs_stops_calls_for_a_limited_time() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::Free);
    let words = agent.page.words();
    words.opens_at_ms.store(crate::agent::milliseconds() + 100, Ordering::Relaxed);
    words.suspended.store(1, Ordering::SeqCst);
    for _ in 0..100 {
        assert_eq!(cuda.synchronize(), 0);
    }
    assert!(!agent.work().is_waiting);
}

#[test]
fn a_launch_that_is_captured_waits_too() {
    let cuda = inside!(4 * GIB);
    let agent = Agent::with(&cuda, Lease::Free);
    let (kernel, stream, done) = (cuda.kernel("kernel"), cuda.stream(), AtomicU32::new(0));
    let mut graph = 0_usize;
    // In relaxed mode another thread may add to it.
    assert_eq!(call!(cuda, cuStreamBeginCapture_v2(stream => usize, 2 => u32)), 0);
    agent.page.set(Lease::None);
    agent.page.words().suspended.store(1, Ordering::SeqCst);
    thread::scope(|scope| {
        cuda.launching(scope, (kernel, stream), 1, &done);
        assert!(eventually(|| agent.work().is_waiting));
        assert_eq!(done.load(Ordering::SeqCst), 0);
        agent.page.words().suspended.store(0, Ordering::SeqCst);
    });
    assert_eq!(call!(cuda, cuStreamEndCapture(stream => usize, &raw mut graph => *mut usize)), 0);
}
