//! Memory that a graph allocates when it is launched.

use std::ptr::{null, null_mut};

use super::{Held, Place, size};
use crate::driver::{CudaError, Handle, MemAllocNode, Pointer};

/// A graph of one node that allocates, launched; the memory stays when the graph is gone.
pub(super) fn node<'a>(place: &'a Place<'a>, bytes: u64) -> Result<Held<'a>, CudaError> {
    let cuda = place.cuda;
    let mut graph: Handle = null_mut();
    cuda.graph_create(&mut graph, 0)?;
    let mut exec: Handle = null_mut();
    let launched = launch(place, graph, &mut exec, bytes);
    let pointer = launched.inspect_err(|_| drop(destroy(place, graph, exec)))?;
    Ok(Held::new(move || {
        cuda.free(pointer)?;
        destroy(place, graph, exec)
    }))
}

fn launch(
    place: &Place<'_>,
    graph: Handle,
    exec: &mut Handle,
    bytes: u64,
) -> Result<Pointer, CudaError> {
    let cuda = place.cuda;
    let (mut node, mut what) = (null_mut(), MemAllocNode::device(place.device, size(bytes)));
    cuda.graph_add_allocation(&mut node, graph, null(), 0, &mut what)?;
    cuda.graph_instantiate(exec, graph, 0)?;
    cuda.graph_launch(*exec, null_mut())?;
    cuda.stream_synchronize(null_mut())?;
    Ok(what.pointer)
}

fn destroy(place: &Place<'_>, graph: Handle, exec: Handle) -> Result<(), CudaError> {
    if !exec.is_null() {
        place.cuda.graph_exec_destroy(exec)?;
    }
    place.cuda.graph_destroy(graph)?;
    place.cuda.graph_trim(place.device)
}
