//! Memory that a graph allocates at launch.

use std::ptr::{null, null_mut};

use super::{Allocation, GpuContext, size};
use crate::driver::{CudaError, Handle, MemAllocNode, Pointer};

/// Launches a graph with one allocation node; its memory outlives the graph.
pub(super) fn node<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    let cuda = context.cuda;
    let mut graph: Handle = null_mut();
    cuda.graph_create(&mut graph, 0)?;
    let mut exec: Handle = null_mut();
    let launched = launch(context, graph, &mut exec, bytes);
    let pointer = launched.inspect_err(|_| drop(destroy(context, graph, exec)))?;
    Ok(Allocation::new(move || {
        cuda.free(pointer)?;
        destroy(context, graph, exec)
    }))
}

fn launch(
    context: &GpuContext<'_>,
    graph: Handle,
    exec: &mut Handle,
    bytes: u64,
) -> Result<Pointer, CudaError> {
    let cuda = context.cuda;
    let (mut node, mut what) = (null_mut(), MemAllocNode::device(context.device, size(bytes)));
    cuda.graph_add_allocation(&mut node, graph, null(), 0, &mut what)?;
    cuda.graph_instantiate(exec, graph, 0)?;
    cuda.graph_launch(*exec, null_mut())?;
    cuda.stream_synchronize(null_mut())?;
    Ok(what.pointer)
}

fn destroy(context: &GpuContext<'_>, graph: Handle, exec: Handle) -> Result<(), CudaError> {
    if !exec.is_null() {
        context.cuda.graph_exec_destroy(exec)?;
    }
    context.cuda.graph_destroy(graph)?;
    context.cuda.graph_trim(context.device)
}
