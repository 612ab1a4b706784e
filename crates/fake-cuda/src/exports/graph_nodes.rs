//! Nodes of graphs.

use std::ffi::{c_int, c_uint};

use crate::abi::{
    AllocParams, Copy3d, HostParams, KernelParams, MemPoolProps, MemsetParams, NodeParams,
};
use crate::code::{CallResult, Code};
use crate::execution::callbacks::Callback;
use crate::execution::event::EVENTS;
use crate::execution::graph::{self, GRAPHS, NODES, Op};
use crate::execution::launch::{self, Kernel};
use crate::library::device;
use crate::pointers::{In, Out};
use crate::table::Handle;

calls! { CALLS = call;
    fn cuGraphAddKernelNode(
        node: Out<Handle>,
        graph: Handle,
        after: In<Handle>,
        count: usize,
        params: In<KernelParams>,
    ) {
        add(node, graph, after, count, Op::Kernel(kernel(&params.read()?)?))
    }

    fn cuGraphAddKernelNode_v2(
        node: Out<Handle>,
        graph: Handle,
        after: In<Handle>,
        count: usize,
        params: In<KernelParams>,
    ) {
        add(node, graph, after, count, Op::Kernel(kernel(&params.read()?)?))
    }

    fn cuGraphAddMemcpyNode(
        node: Out<Handle>,
        graph: Handle,
        after: In<Handle>,
        count: usize,
        params: In<Copy3d>,
        _context: Handle,
    ) {
        add(node, graph, after, count, Op::Copy(params.read()?))
    }

    fn cuGraphAddMemsetNode(
        node: Out<Handle>,
        graph: Handle,
        after: In<Handle>,
        count: usize,
        params: In<MemsetParams>,
        _context: Handle,
    ) {
        add(node, graph, after, count, Op::Fill(params.read()?))
    }

    fn cuGraphAddHostNode(
        node: Out<Handle>,
        graph: Handle,
        after: In<Handle>,
        count: usize,
        params: In<HostParams>,
    ) {
        add(node, graph, after, count, host(&params.read()?)?)
    }

    fn cuGraphAddChildGraphNode(
        node: Out<Handle>,
        graph: Handle,
        after: In<Handle>,
        count: usize,
        child: Handle,
    ) {
        add(node, graph, after, count, Op::Child(graph::ops(child)?))
    }

    fn cuGraphAddEmptyNode(node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize) {
        add(node, graph, after, count, Op::Empty)
    }

    fn cuGraphAddEventRecordNode(
        node: Out<Handle>,
        graph: Handle,
        after: In<Handle>,
        count: usize,
        event: Handle,
    ) {
        EVENTS.with(event, |_| Ok(()))?;
        add(node, graph, after, count, Op::Record(event))
    }

    fn cuGraphAddEventWaitNode(
        node: Out<Handle>,
        graph: Handle,
        after: In<Handle>,
        count: usize,
        event: Handle,
    ) {
        EVENTS.with(event, |_| Ok(()))?;
        add(node, graph, after, count, Op::Wait(event))
    }

    fn cuGraphAddMemAllocNode(
        node: Out<Handle>,
        graph: Handle,
        after: In<Handle>,
        count: usize,
        params: Out<AllocParams>,
    ) {
        let (op, filled) = allocation(&params.read()?)?;
        add(node, graph, after, count, op)?;
        params.put(filled)
    }

    fn cuGraphAddMemFreeNode(
        node: Out<Handle>,
        graph: Handle,
        after: In<Handle>,
        count: usize,
        address: u64,
    ) {
        add(node, graph, after, count, Op::Free(address))
    }

    fn cuGraphAddNode(
        node: Out<Handle>,
        graph: Handle,
        after: In<Handle>,
        count: usize,
        params: Out<NodeParams>,
    ) {
        add_any(node, graph, after, count, params)
    }

    fn cuGraphAddNode_v2(
        node: Out<Handle>,
        graph: Handle,
        after: In<Handle>,
        _edges: usize,
        count: usize,
        params: Out<NodeParams>,
    ) {
        add_any(node, graph, after, count, params)
    }

    fn cuGraphDestroyNode(node: Handle) {
        let node_graph = NODES.remove(node)?.graph;
        GRAPHS.with(node_graph, |graph| {
            graph.nodes.retain(|other| *other != node);
            Ok(())
        })
    }

    fn cuGraphNodeGetType(node: Handle, kind: Out<c_uint>) {
        kind.put(NODES.with(node, |node| Ok(node.op.kind()))?)
    }

    fn cuGraphNodeGetDependencies(node: Handle, after: Out<Handle>, count: Out<usize>) {
        let all = NODES.with(node, |node| Ok(node.after.clone()))?;
        if after.is_null() {
            return count.put(all.len());
        }
        let room = count.read()?;
        after.put_list(&all, room)?;
        count.put(all.len().min(room))
    }

    fn cuGraphKernelNodeGetParams(node: Handle, params: Out<KernelParams>) {
        params.put(kernel_params(node)?)
    }

    fn cuGraphKernelNodeGetParams_v2(node: Handle, params: Out<KernelParams>) {
        params.put(kernel_params(node)?)
    }

    fn cuGraphMemAllocNodeGetParams(node: Handle, params: Out<AllocParams>) {
        params.put(NODES.with(node, |node| match &node.op {
            Op::Allocate(addresses) => Ok(AllocParams {
                props: MemPoolProps::on(addresses.device),
                access: 0,
                access_count: 0,
                size: addresses.size,
                address: addresses.start,
            }),
            _ => Err(Code::INVALID_VALUE),
        })?)
    }

    fn cuGraphMemFreeNodeGetParams(node: Handle, address: Out<u64>) {
        address.put(NODES.with(node, |node| match node.op {
            Op::Free(address) => Ok(address),
            _ => Err(Code::INVALID_VALUE),
        })?)
    }
}

fn add(node: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, op: Op) -> CallResult {
    node.check()?;
    node.put(graph::add(graph, &after.list(count)?, op)?)
}

/// Adds a node of any kind; its parameters are in the union.
fn add_any(
    node: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
    params: Out<NodeParams>,
) -> CallResult {
    let given = params.read()?;
    let place = (&raw const given.of_kind).expose_provenance();
    let op = match given.kind {
        0 => Op::Kernel(kernel(&In::within(place).read()?)?),
        2 => Op::Fill(In::within(place).read()?),
        3 => host(&In::within(place).read()?)?,
        4 => Op::Child(graph::ops(usize::try_from(given.of_kind[0]).unwrap_or(0))?),
        5 => Op::Empty,
        10 => {
            let (op, filled) = allocation(&In::within(place).read()?)?;
            add(node, graph, after, count, op)?;
            let mut answer = given;
            // The address is the last member of the parameters.
            answer.of_kind[size_of::<AllocParams>() / 8 - 1] = filled.address;
            return params.put(answer);
        }
        11 => Op::Free(given.of_kind[0]),
        _ => return Err(Code::NOT_SUPPORTED),
    };
    add(node, graph, after, count, op)
}

fn kernel(params: &KernelParams) -> Result<Kernel, Code> {
    let KernelParams { function, grid, block, shared_bytes, arguments, .. } = *params;
    launch::kernel(function, grid, block, shared_bytes, arguments)
}

fn host(params: &HostParams) -> Result<Op, Code> {
    let function = params.function.ok_or(Code::INVALID_VALUE)?;
    Ok(Op::Host(Callback::Plain(function, params.data)))
}

fn allocation(params: &AllocParams) -> Result<(Op, AllocParams), Code> {
    let device = device(c_int::max(params.props.location.id, 0))?;
    let addresses = graph::addresses(device, params.size)?;
    let filled = AllocParams { address: addresses.start, ..*params };
    Ok((Op::Allocate(addresses), filled))
}

fn kernel_params(node: Handle) -> Result<KernelParams, Code> {
    NODES.with(node, |node| match &node.op {
        Op::Kernel(Kernel { function, grid, block, shared_bytes, .. }) => Ok(KernelParams {
            function: *function,
            grid: *grid,
            block: *block,
            shared_bytes: *shared_bytes,
            arguments: 0,
            extra: 0,
        }),
        _ => Err(Code::INVALID_VALUE),
    })
}
