//! Graphs that allocate memory. Their launches are in [`super::launch`].

use crate::cuda::{Device, Opaque, Status};
use crate::leases::wait_while_suspended;
use crate::platform::ffi::{In, Out};
use crate::tracking::graph_memory as memory;
use crate::tracking::streams::Stream;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD` and `..._DEVICE_LAUNCH`: the graph gets its memory at once.
const MEMORY_AT_INSTANTIATION: u64 = 2 | 4;

hooks! {
    CUDA, Status;

    /// Adds an allocation node. It takes addresses; memory is allocated and charged at launch.
    fn cuGraphAddMemAllocNode(node: Out<Opaque>, graph: Opaque, after: Opaque, count: usize, params: Opaque) -> Status {
        real::cuGraphAddMemAllocNode(node, graph, after, count, params)
    }

    /// Instantiates a graph, before CUDA 11.
    fn cuGraphInstantiate(exec: Out<Opaque>, graph: Opaque, error: Opaque, log: Opaque, log_bytes: usize) -> Status {
        instantiate(exec, graph, 0, &mut || real::cuGraphInstantiate(exec, graph, error, log, log_bytes))
    }

    /// Instantiates a graph, before CUDA 12.
    fn cuGraphInstantiate_v2(exec: Out<Opaque>, graph: Opaque, error: Opaque, log: Opaque, log_bytes: usize) -> Status {
        instantiate(exec, graph, 0, &mut || real::cuGraphInstantiate_v2(exec, graph, error, log, log_bytes))
    }

    /// Instantiates a graph.
    fn cuGraphInstantiateWithFlags(exec: Out<Opaque>, graph: Opaque, flags: u64) -> Status {
        instantiate(exec, graph, flags, &mut || real::cuGraphInstantiateWithFlags(exec, graph, flags))
    }

    /// Instantiates a graph. The parameters begin with the flags.
    fn cuGraphInstantiateWithParams(exec: Out<Opaque>, graph: Opaque, params: In<u64>) -> Status {
        let flags = params.read().unwrap_or(0);
        instantiate(exec, graph, flags, &mut || real::cuGraphInstantiateWithParams(exec, graph, params))
    }

    /// As above, with the per-thread default stream.
    fn cuGraphInstantiateWithParams_ptsz(exec: Out<Opaque>, graph: Opaque, params: In<u64>) -> Status {
        let flags = params.read().unwrap_or(0);
        instantiate(exec, graph, flags, &mut || real::cuGraphInstantiateWithParams_ptsz(exec, graph, params))
    }

    /// Updates an instantiated graph, before CUDA 12.
    fn cuGraphExecUpdate(exec: Opaque, graph: Opaque, error: Opaque, answer: Opaque) -> Status {
        wait_while_suspended();
        update(exec, graph, real::cuGraphExecUpdate(exec, graph, error, answer))
    }

    /// Updates an instantiated graph.
    fn cuGraphExecUpdate_v2(exec: Opaque, graph: Opaque, answer: Opaque) -> Status {
        wait_while_suspended();
        update(exec, graph, real::cuGraphExecUpdate_v2(exec, graph, answer))
    }

    /// Destroys an instantiated graph. Its memory stays for other graphs.
    fn cuGraphExecDestroy(exec: Opaque) -> Status {
        wait_while_suspended();
        memory::forget_executable(exec, || real::cuGraphExecDestroy(exec))
    }

    /// Allocates the memory of a graph before its launch.
    fn cuGraphUpload(exec: Opaque, stream: Opaque) -> Status {
        wait_while_suspended();
        memory::with_memory(exec, Stream::legacy(stream), || real::cuGraphUpload(exec, stream))
    }

    /// As above, with the per-thread default stream.
    fn cuGraphUpload_ptsz(exec: Opaque, stream: Opaque) -> Status {
        wait_while_suspended();
        memory::with_memory(exec, Stream::per_thread(stream), || real::cuGraphUpload_ptsz(exec, stream))
    }

    /// Frees unused graph memory.
    fn cuDeviceGraphMemTrim(device: Device) -> Status {
        wait_while_suspended();
        memory::run_trim(device, || real::cuDeviceGraphMemTrim(device))
    }
}

fn instantiate(
    exec: Out<Opaque>,
    graph: Opaque,
    flags: u64,
    make: &mut dyn FnMut() -> Status,
) -> Status {
    wait_while_suspended();
    let needs = match memory::needs(graph) {
        Ok(needs) => needs,
        Err(status) => return status,
    };
    let status = if needs == memory::Needs::default() {
        make()
    } else if flags & MEMORY_AT_INSTANTIATION != 0 {
        memory::run_with_memory(needs, make)
    } else {
        memory::run_and_settle(needs, make)
    };
    let Some(made) = exec.read().filter(|_| status.is_success()) else { return status };
    match memory::record_executable(made, needs) {
        Ok(()) => status,
        Err(full) => {
            real::cuGraphExecDestroy(made);
            full
        }
    }
}

fn update(exec: Opaque, graph: Opaque, status: Status) -> Status {
    if status.is_success()
        && let Ok(needs) = memory::needs(graph)
    {
        // If the table is full, the additional need is charged once it is allocated.
        let _ = memory::record_executable(exec, needs);
    }
    status
}
