//! Contexts and their memory.

use crate::call;
use crate::node::{CONTEXT, Cuda, GIB, MIB, Node, OUT_OF_MEMORY};

fn retain(cuda: &Cuda) -> usize {
    let mut context = 0_usize;
    assert_eq!(call!(cuda, cuDevicePrimaryCtxRetain(&raw mut context => *mut usize, 0 => i32)), 0);
    context
}

fn release(cuda: &Cuda) -> u32 {
    call!(cuda, cuDevicePrimaryCtxRelease_v2(0 => i32))
}

#[test]
fn a_context_takes_memory_as_long_as_it_lives() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let second = cuda.context(0);
    assert_eq!(cuda.used(), 2 * CONTEXT);
    cuda.allocate(GIB).unwrap();
    assert_eq!(call!(cuda, cuCtxDestroy_v2(second => usize)), 0);
    assert_eq!(cuda.used(), CONTEXT, "what was allocated in it is gone, too");
}

#[test]
fn the_primary_context_is_one_and_ends_with_its_last_release() {
    let node = Node::new("t4");
    let cuda = node.start();
    let (first, second) = (retain(&cuda), retain(&cuda));
    assert_eq!(first, second);
    assert_eq!(call!(cuda, cuCtxSetCurrent(first => usize)), 0);
    assert_eq!(cuda.used(), CONTEXT);
    assert_eq!(call!(cuda, cuCtxDestroy_v2(first => usize)), 201);
    assert_eq!(release(&cuda), 0);
    cuda.allocate(MIB).unwrap();
    assert_eq!(release(&cuda), 0);
    assert_eq!(release(&cuda), 201);
    assert_eq!(cuda.allocate(MIB), Err(201));
    let (mut flags, mut is_active) = (9, 9);
    let code = call!(cuda, cuDevicePrimaryCtxGetState(
        0 => i32, &raw mut flags => *mut u32, &raw mut is_active => *mut i32));
    assert_eq!((code, flags, is_active), (0, 0, 0));
}

#[test]
fn contexts_are_stacked_per_thread() {
    let node = Node::new("t4");
    let cuda = node.start();
    let (first, second) = (cuda.context(0), cuda.context(0));
    let current = || {
        let mut context = 0_usize;
        assert_eq!(call!(cuda, cuCtxGetCurrent(&raw mut context => *mut usize)), 0);
        context
    };
    let pop = || {
        let mut context = 0_usize;
        let code = call!(cuda, cuCtxPopCurrent_v2(&raw mut context => *mut usize));
        (code, context)
    };
    assert_eq!(current(), second);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(current(), 0, "another thread has none");
            assert_eq!(call!(cuda, cuCtxPushCurrent_v2(first => usize)), 0);
            assert_eq!(current(), first);
        });
    });
    assert_eq!(pop(), (0, second));
    assert_eq!(pop(), (0, first));
    assert_eq!(pop().0, 201);
    let mut version = 0_u32;
    let code = call!(cuda, cuCtxGetApiVersion(first => usize, &raw mut version => *mut u32));
    assert_eq!((code, version), (0, 3020));
}

#[test]
fn stacks_and_heaps_of_the_device_take_memory() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let set = |limit: u32, value: u64| call!(cuda, cuCtxSetLimit(limit => u32, value => u64));
    // 40 multiprocessors of 2048 threads with 16 KiB each instead of one.
    assert_eq!(set(0, 16 << 10), 0);
    assert_eq!(cuda.used() - CONTEXT, 15 * 1024 * 40 * 2048);
    assert_eq!(set(0, 1 << 10), 0);
    assert_eq!(set(2, GIB), 0);
    assert_eq!(cuda.used() - CONTEXT, GIB - 8 * MIB);
    assert_eq!(set(2, 64 * GIB), OUT_OF_MEMORY);
    assert_eq!(set(99, 1), 215);
    let mut value = 0_usize;
    assert_eq!(call!(cuda, cuCtxGetLimit(&raw mut value => *mut usize, 2 => u32)), 0);
    assert_eq!(value as u64, GIB);
}

#[test]
fn a_green_context_is_a_context() {
    let node = Node::new("dgx-h100");
    let cuda = node.start();
    let mut resource = [0_u32; 36];
    let code = call!(cuda, cuDeviceGetDevResource(
        0 => i32, resource.as_mut_ptr() => *mut u32, 1 => u32));
    assert_eq!((code, resource[24]), (0, 132));
    let (mut part, mut rest, mut count) = ([0_u32; 36], [0_u32; 36], 1);
    let code = call!(cuda, cuDevSmResourceSplitByCount(
        part.as_mut_ptr() => *mut u32, &raw mut count => *mut u32,
        resource.as_ptr() => *const u32, rest.as_mut_ptr() => *mut u32, 0 => u32, 60 => u32));
    assert_eq!((code, count, part[24], rest[24]), (0, 1, 64, 68));
    let (mut description, mut green, mut context) = (0_usize, 0_usize, 0_usize);
    let code = call!(cuda, cuDevResourceGenerateDesc(
        &raw mut description => *mut usize, part.as_ptr() => *const u32, 1 => u32));
    assert_eq!(code, 0);
    let code = call!(cuda, cuGreenCtxCreate(
        &raw mut green => *mut usize, description => usize, 0 => i32, 1 => u32));
    assert_eq!(code, 0);
    let code = call!(cuda, cuCtxFromGreenCtx(&raw mut context => *mut usize, green => usize));
    assert_eq!(code, 0);
    assert_eq!(call!(cuda, cuCtxSetCurrent(context => usize)), 0);
    assert_eq!(cuda.used(), CONTEXT);
    assert_eq!(call!(cuda, cuGreenCtxDestroy(green => usize)), 0);
}

#[test]
fn nothing_works_before_initialisation_but_what_needs_none() {
    let node = Node::new("t4");
    let cuda = node.load();
    let (mut count, mut version) = (0, 0);
    assert_eq!(call!(cuda, cuDeviceGetCount(&raw mut count => *mut i32)), 3);
    assert_eq!(call!(cuda, cuDriverGetVersion(&raw mut version => *mut i32)), 0);
    assert_eq!(version, 13000);
    assert_eq!(call!(cuda, cuInit(1 => u32)), 1);
    assert_eq!(call!(cuda, cuInit(0 => u32)), 0);
    assert_eq!(call!(cuda, cuDeviceGetCount(&raw mut count => *mut i32)), 0);
    assert_eq!(count, 4);
    assert_eq!(call!(cuda, cuCtxSynchronize()), 201);
}

#[test]
fn a_library_without_a_machine_sees_no_device() {
    let node = Node::new("t4");
    std::fs::remove_file(node.folder.path().join("machine.yaml")).unwrap();
    let cuda = node.load();
    assert_eq!(call!(cuda, cuInit(0 => u32)), 100);
}
