//! Graphs and captures.

use octavo_machine::{GpuState, KernelState};

use crate::call;
use crate::node::{CONTEXT, Cuda, INVALID_VALUE, MIB, Node};

const AUTO_FREE: u64 = 1;

impl Cuda {
    fn capture(&self, stream: usize) {
        let code = call!(self, cuStreamBeginCapture_v2(stream => usize, 0 => u32));
        assert_eq!(code, 0);
    }

    fn end_capture(&self, stream: usize) -> Result<usize, u32> {
        let mut graph = 0_usize;
        match call!(self, cuStreamEndCapture(stream => usize, &raw mut graph => *mut usize)) {
            0 => Ok(graph),
            code => Err(code),
        }
    }

    fn instantiate(&self, graph: usize, flags: u64) -> usize {
        let mut exec = 0_usize;
        let code = call!(self, cuGraphInstantiateWithFlags(
            &raw mut exec => *mut usize, graph => usize, flags => u64));
        assert_eq!(code, 0);
        exec
    }

    fn launch_graph(&self, exec: usize, stream: usize) -> u32 {
        call!(self, cuGraphLaunch(exec => usize, stream => usize))
    }

    fn nodes(&self, graph: usize) -> usize {
        let mut count = 0_usize;
        let code = call!(self, cuGraphGetNodes(
            graph => usize, 0 => usize, &raw mut count => *mut usize));
        assert_eq!(code, 0);
        count
    }

    fn graph_memory(&self, attribute: u32) -> u64 {
        let mut value = 0_u64;
        let code = call!(self, cuDeviceGetGraphMemAttribute(
            0 => i32, attribute => u32, &raw mut value => *mut u64));
        assert_eq!(code, 0);
        value
    }
}

fn with_kernel(nanos: u64) -> Node {
    let node = Node::new("t4");
    let kernel = KernelState { nanos: Some(nanos), ..KernelState::default() };
    node.gpu_becomes(GpuState {
        kernels: [("k".to_owned(), kernel)].into(),
        ..GpuState::default()
    });
    node
}

#[test]
fn captured_work_runs_when_the_graph_is_launched() {
    let node = with_kernel(1_000);
    let cuda = node.ready();
    let (kernel, stream) = (cuda.kernel("k"), cuda.stream());
    let address = cuda.allocate(MIB).unwrap();
    let text = *b"replayed";
    cuda.capture(stream);
    let mut status = 0_u32;
    let code = call!(cuda, cuStreamIsCapturing(stream => usize, &raw mut status => *mut u32));
    assert_eq!((code, status), (0, 1));
    for _ in 0..3 {
        assert_eq!(cuda.launch(kernel, stream), 0);
    }
    let code = call!(cuda, cuMemcpyHtoDAsync_v2(
        address => u64, text.as_ptr() => *const u8, 8 => usize, stream => usize));
    assert_eq!(code, 0);
    assert_eq!(call!(cuda, cuStreamSynchronize(stream => usize)), 900);
    let graph = cuda.end_capture(stream).unwrap();
    assert_eq!(cuda.nodes(graph), 4);
    assert_eq!(cuda.download(address, 8).unwrap(), [0; 8], "nothing has run yet");
    let exec = cuda.instantiate(graph, 0);
    let (start, end) = (cuda.event(), cuda.event());
    cuda.record(start, stream);
    assert_eq!((cuda.launch_graph(exec, stream), cuda.launch_graph(exec, stream)), (0, 0));
    cuda.record(end, stream);
    assert_eq!(cuda.synchronize(), 0);
    assert!(cuda.elapsed(start, end).unwrap() >= 6_000);
    assert_eq!(cuda.download(address, 8).unwrap(), b"replayed");
    assert_eq!(call!(cuda, cuGraphExecDestroy(exec => usize)), 0);
    assert_eq!(cuda.launch_graph(exec, stream), 400);
}

#[test]
fn a_stream_takes_part_by_an_event_and_must_come_back() {
    let node = with_kernel(1_000);
    let cuda = node.ready();
    let (kernel, one, two) = (cuda.kernel("k"), cuda.stream(), cuda.stream());
    let (fork, join) = (cuda.event(), cuda.event());
    for comes_back in [true, false] {
        cuda.capture(one);
        assert_eq!(cuda.launch(kernel, one), 0);
        cuda.record(fork, one);
        assert_eq!(call!(cuda, cuStreamWaitEvent(two => usize, fork => usize, 0 => u32)), 0);
        assert_eq!(cuda.launch(kernel, two), 0);
        assert_eq!(cuda.end_capture(two), Err(903));
        if comes_back {
            cuda.record(join, two);
            assert_eq!(call!(cuda, cuStreamWaitEvent(one => usize, join => usize, 0 => u32)), 0);
            let graph = cuda.end_capture(one).unwrap();
            assert_eq!(cuda.nodes(graph), 2);
        } else {
            assert_eq!(cuda.end_capture(one), Err(904));
        }
        assert_eq!(cuda.launch(kernel, two), 0, "it captures no more");
    }
}

#[test]
fn memory_of_graphs_is_reserved_by_the_first_launch_and_kept() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let stream = cuda.stream();
    cuda.capture(stream);
    let mut address = 0_u64;
    let code = call!(cuda, cuMemAllocAsync(
        &raw mut address => *mut u64, 64 * MIB => u64, stream => usize));
    assert_eq!(code, 0);
    assert_eq!(call!(cuda, cuMemFreeAsync(address => u64, stream => usize)), 0);
    let graph = cuda.end_capture(stream).unwrap();
    let exec = cuda.instantiate(graph, 0);
    assert_eq!(cuda.used(), CONTEXT, "nothing is launched or uploaded yet");
    assert_eq!(call!(cuda, cuGraphUpload(exec => usize, stream => usize)), 0);
    assert_eq!(
        (cuda.used(), cuda.graph_memory(0), cuda.graph_memory(2)),
        (CONTEXT + 64 * MIB, 0, 64 * MIB)
    );
    for _ in 0..3 {
        assert_eq!(cuda.launch_graph(exec, stream), 0);
    }
    assert_eq!(cuda.used(), CONTEXT + 64 * MIB);
    assert_eq!((cuda.graph_memory(1), cuda.graph_memory(3)), (64 * MIB, 64 * MIB));
    assert_eq!(call!(cuda, cuGraphExecDestroy(exec => usize)), 0);
    assert_eq!(cuda.used(), CONTEXT + 64 * MIB, "it stays reserved");
    assert_eq!(call!(cuda, cuDeviceGraphMemTrim(0 => i32)), 0);
    assert_eq!((cuda.used(), cuda.graph_memory(2)), (CONTEXT, 0));
}

#[test]
fn unfreed_graph_memory_blocks_the_next_launch() {
    let node = Node::new("t4");
    let cuda = node.ready();
    let (mut graph, mut handle) = (0_usize, 0_usize);
    assert_eq!(call!(cuda, cuGraphCreate(&raw mut graph => *mut usize, 0 => u32)), 0);
    // Pool properties (pinned, on device 0), no access, 10 MiB, space for the address.
    let mut params = [0_u64; 15];
    (params[0], params[1], params[13]) = (1, 1, 10 * MIB);
    let code = call!(cuda, cuGraphAddMemAllocNode(
        &raw mut handle => *mut usize, graph => usize, 0 => usize, 0 => usize,
        params.as_mut_ptr() => *mut u64));
    assert_eq!(code, 0);
    let address = params[14];
    let exec = cuda.instantiate(graph, 0);
    assert_eq!(cuda.upload(address, b"x"), INVALID_VALUE, "it is not allocated yet");
    assert_eq!(cuda.launch_graph(exec, 0), 0);
    assert_eq!(cuda.upload(address, b"x"), 0);
    assert_eq!(cuda.launch_graph(exec, 0), INVALID_VALUE);
    assert_eq!(cuda.free(address), 0);
    assert_eq!(cuda.launch_graph(exec, 0), 0);
    let freeing = cuda.instantiate(graph, AUTO_FREE);
    assert_eq!(cuda.launch_graph(freeing, 0), 0);
    assert_eq!((cuda.graph_memory(0), cuda.graph_memory(2)), (10 * MIB, 10 * MIB));
}

#[test]
fn a_graph_can_be_updated_from_one_of_the_same_shape() {
    let node = with_kernel(1_000);
    let cuda = node.ready();
    let (kernel, other, stream) = (cuda.kernel("k"), cuda.kernel("other"), cuda.stream());
    let graph_of = |kernels: &[usize]| {
        cuda.capture(stream);
        for kernel in kernels {
            assert_eq!(cuda.launch(*kernel, stream), 0);
        }
        cuda.end_capture(stream).unwrap()
    };
    let exec = cuda.instantiate(graph_of(&[kernel]), 0);
    let update = |graph: usize| {
        let mut result = [9_usize; 3];
        let code = call!(cuda, cuGraphExecUpdate_v2(
            exec => usize, graph => usize, result.as_mut_ptr() => *mut usize));
        (code, result[0] & 0xffff_ffff)
    };
    assert_eq!(update(graph_of(&[other])), (0, 0));
    assert_eq!(update(graph_of(&[kernel, kernel])), (910, 1));
}
