//! Graphs that allocate memory.

use crate::cuda::{CONTEXT, Cuda, FIRST_GPU, GIB, MIB, OUT_OF_MEMORY, Prop, ok};
use crate::{call, inside};

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
struct Params {
    pool: Prop,
    access: usize,
    access_count: usize,
    bytes: u64,
    address: u64,
}

const UPLOAD: u64 = 2;

impl Cuda {
    pub(crate) fn graph(&self) -> usize {
        let mut graph = 0_usize;
        ok(call!(self, cuGraphCreate(&raw mut graph => *mut usize, 0 => u32)), graph).unwrap()
    }

    /// An allocation node after another node (0 for none), and its address.
    pub(crate) fn add_allocation(&self, graph: usize, after: usize, bytes: u64) -> (usize, u64) {
        let mut node = 0_usize;
        let mut params =
            Params { pool: Prop::at(FIRST_GPU), access: 0, access_count: 0, bytes, address: 0 };
        let code = call!(self, cuGraphAddMemAllocNode(
            &raw mut node => *mut usize, graph => usize, &raw const after => *const usize,
            usize::from(after != 0) => usize, &raw mut params => *mut Params));
        assert_eq!(code, 0);
        (node, params.address)
    }

    pub(crate) fn add_free(&self, graph: usize, after: usize, address: u64) {
        let mut node = 0_usize;
        let code = call!(self, cuGraphAddMemFreeNode(
            &raw mut node => *mut usize, graph => usize, &raw const after => *const usize,
            1 => usize, address => u64));
        assert_eq!(code, 0);
    }

    pub(crate) fn instantiate(&self, graph: usize, flags: u64) -> Result<usize, u32> {
        let mut exec = 0_usize;
        let code = call!(self, cuGraphInstantiateWithFlags(
            &raw mut exec => *mut usize, graph => usize, flags => u64));
        ok(code, exec)
    }

    pub(crate) fn launch_graph(&self, exec: usize) -> u32 {
        call!(self, cuGraphLaunch(exec => usize, 0 => usize))
    }

    pub(crate) fn trim_graphs(&self) -> u32 {
        call!(self, cuDeviceGraphMemTrim(0 => i32))
    }

    /// An instantiated graph that allocates and frees.
    fn passing(&self, bytes: u64) -> usize {
        let graph = self.graph();
        let (node, address) = self.add_allocation(graph, 0, bytes);
        self.add_free(graph, node, address);
        self.instantiate(graph, 0).unwrap()
    }
}

#[test]
fn a_graphs_memory_counts_from_its_launch_until_it_is_trimmed() {
    let cuda = inside!(2 * GIB);
    let exec = cuda.passing(500 * MIB);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    for _ in 0..5 {
        assert_eq!(cuda.launch_graph(exec), 0);
        assert_eq!((cuda.counted(), cuda.used()), (500 * MIB, 500 * MIB));
    }
    assert_eq!(call!(cuda, cuGraphExecDestroy(exec => usize)), 0);
    assert_eq!((cuda.counted(), cuda.used()), (500 * MIB, 500 * MIB));
    assert_eq!(cuda.trim_graphs(), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn a_graph_that_does_not_fit_is_not_launched() {
    let cuda = inside!(2 * GIB);
    let exec = cuda.passing(2 * GIB);
    assert_eq!(cuda.launch_graph(exec), OUT_OF_MEMORY);
    assert_eq!(call!(cuda, cuGraphUpload(exec => usize, 0 => usize)), OUT_OF_MEMORY);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    let held = cuda.allocate(GIB).unwrap();
    let exec = cuda.passing(GIB);
    assert_eq!(cuda.launch_graph(exec), OUT_OF_MEMORY);
    assert_eq!(cuda.free(held), 0);
    assert_eq!(cuda.launch_graph(exec), 0);
    assert_eq!((cuda.counted(), cuda.used()), (GIB, GIB));
}

#[test]
fn a_graph_that_has_its_memory_is_launched_at_the_limit() {
    let cuda = inside!(2 * GIB);
    let exec = cuda.passing(GIB);
    assert_eq!(cuda.launch_graph(exec), 0);
    let rest = cuda.allocate(GIB - CONTEXT).unwrap();
    for _ in 0..3 {
        assert_eq!(cuda.launch_graph(exec), 0);
    }
    // Another graph uses the same memory.
    assert_eq!(cuda.launch_graph(cuda.passing(900 * MIB)), 0);
    assert_eq!(cuda.counted(), 2 * GIB - CONTEXT);
    assert_eq!(cuda.free(rest), 0);
    // Idle graph memory is freed for other allocations.
    let all = cuda.allocate(2 * GIB - CONTEXT).unwrap();
    assert_eq!(cuda.counted(), cuda.used());
    assert_eq!(cuda.launch_graph(exec), OUT_OF_MEMORY);
    assert_eq!(cuda.free(all), 0);
    assert_eq!(cuda.launch_graph(exec), 0);
}

#[test]
fn an_upload_counts_as_a_launch_does() {
    let cuda = inside!(2 * GIB);
    let exec = cuda.passing(500 * MIB);
    assert_eq!(call!(cuda, cuGraphUpload(exec => usize, 0 => usize)), 0);
    assert_eq!((cuda.counted(), cuda.used()), (500 * MIB, 500 * MIB));
    assert_eq!(cuda.trim_graphs(), 0);
    let graph = cuda.graph();
    cuda.add_allocation(graph, 0, 700 * MIB);
    assert!(cuda.instantiate(graph, UPLOAD).is_ok());
    assert_eq!((cuda.counted(), cuda.used()), (700 * MIB, 700 * MIB));
    let graph = cuda.graph();
    cuda.add_allocation(graph, 0, 2 * GIB);
    assert_eq!(cuda.instantiate(graph, UPLOAD), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.trim_graphs(), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn unfreed_graph_memory_counts_until_freed_and_trimmed() {
    let cuda = inside!(2 * GIB);
    let graph = cuda.graph();
    let (_, address) = cuda.add_allocation(graph, 0, 500 * MIB);
    let exec = cuda.instantiate(graph, 0).unwrap();
    assert_eq!(cuda.launch_graph(exec), 0);
    assert_eq!(cuda.trim_graphs(), 0);
    assert_eq!((cuda.counted(), cuda.used()), (500 * MIB, 500 * MIB));
    assert_eq!(cuda.free(address), 0);
    assert_eq!(cuda.trim_graphs(), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn what_is_captured_is_counted_once() {
    let cuda = inside!(2 * GIB);
    let stream = cuda.stream();
    assert_eq!(call!(cuda, cuStreamBeginCapture_v2(stream => usize, 0 => u32)), 0);
    let address = cuda.allocate_async(500 * MIB, None, stream).unwrap();
    assert_eq!(cuda.free_async(address, stream), 0);
    // Too much for the share, which matters only at launch.
    let large = cuda.allocate_async(3 * GIB, None, stream).unwrap();
    assert_eq!(cuda.free_async(large, stream), 0);
    let mut graph = 0_usize;
    assert_eq!(call!(cuda, cuStreamEndCapture(stream => usize, &raw mut graph => *mut usize)), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    let exec = cuda.instantiate(graph, 0).unwrap();
    assert_eq!(cuda.launch_graph(exec), OUT_OF_MEMORY);

    assert_eq!(call!(cuda, cuStreamBeginCapture_v2(stream => usize, 0 => u32)), 0);
    let address = cuda.allocate_async(500 * MIB, None, stream).unwrap();
    assert_eq!(cuda.free_async(address, stream), 0);
    assert_eq!(call!(cuda, cuStreamEndCapture(stream => usize, &raw mut graph => *mut usize)), 0);
    let exec = cuda.instantiate(graph, 0).unwrap();
    for _ in 0..3 {
        assert_eq!(call!(cuda, cuGraphLaunch(exec => usize, stream => usize)), 0);
    }
    assert_eq!((cuda.counted(), cuda.used()), (500 * MIB, 500 * MIB));
}

#[test]
fn an_updated_graph_has_the_needs_of_its_new_parameters() {
    let cuda = inside!(2 * GIB);
    let exec = cuda.passing(100 * MIB);
    let graph = cuda.graph();
    let (node, address) = cuda.add_allocation(graph, 0, 2 * GIB);
    cuda.add_free(graph, node, address);
    let mut answer = [0_u64; 3];
    let code = call!(cuda, cuGraphExecUpdate_v2(
        exec => usize, graph => usize, answer.as_mut_ptr() => *mut u64));
    assert_eq!(code, 0);
    assert_eq!(cuda.launch_graph(exec), OUT_OF_MEMORY);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}
