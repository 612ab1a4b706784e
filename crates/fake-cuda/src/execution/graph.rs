//! Graphs: work that is defined first and launched as a whole.

use std::sync::Arc;

use crate::abi::{Copy3d, MemsetParams};
use crate::code::{CallResult, Code};
use crate::context::device_of;
use crate::device::Device;
use crate::execution::callbacks::{self, Callback};
use crate::execution::launch::{self, Kernel};
use crate::execution::stream::{self, Default, STREAMS};
use crate::execution::{capture, event};
use crate::memory::arena::granules;
use crate::memory::copy;
use crate::memory::heap::{self, Range, RangeKind};
use crate::memory::pool::PeakGauge;
use crate::table::{Handle, HandleKind, Table, lock};

/// A graph.
#[derive(Default)]
pub(crate) struct Graph {
    /// In topological order: a node follows its dependencies.
    pub(crate) nodes: Vec<Handle>,
}

/// A node of a graph.
pub(crate) struct Node {
    pub(crate) graph: Handle,
    pub(crate) op: Op,
    pub(crate) after: Vec<Handle>,
}

/// Operation of a node.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Kernel(Kernel),
    Copy(Copy3d),
    Fill(MemsetParams),
    Host(Callback),
    Child(Vec<Op>),
    Empty,
    Wait(Handle),
    Record(Handle),
    Allocate(Arc<Addresses>),
    Free(u64),
}

/// Addresses of a graph's memory, the same for all launches.
#[derive(Debug)]
pub(crate) struct Addresses {
    pub(crate) device: usize,
    pub(crate) start: u64,
    pub(crate) size: u64,
    pub(crate) bytes: u64,
}

/// An instantiated graph.
pub(crate) struct Exec {
    ops: Vec<Op>,
    pub(crate) flags: u64,
}

/// Graph memory of a device.
#[derive(Default)]
pub(crate) struct GraphMemory {
    pub(crate) used: PeakGauge,
    pub(crate) reserved: PeakGauge,
}

/// All graphs of the process.
pub(crate) static GRAPHS: Table<Graph> = Table::new(HandleKind::Graph);
/// All nodes of graphs.
pub(crate) static NODES: Table<Node> = Table::new(HandleKind::Node);
/// All instantiated graphs.
pub(crate) static EXECS: Table<Exec> = Table::new(HandleKind::Exec);

/// `CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`.
const AUTO_FREE: u64 = 1;
/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`.
pub(crate) const UPLOAD: u64 = 2;

impl Op {
    /// The node's type (`CUgraphNodeType`).
    pub(crate) fn kind(&self) -> u32 {
        match self {
            Self::Kernel(_) => 0,
            Self::Copy(_) => 1,
            Self::Fill(_) => 2,
            Self::Host(_) => 3,
            Self::Child(_) => 4,
            Self::Empty => 5,
            Self::Wait(_) => 6,
            Self::Record(_) => 7,
            Self::Allocate(_) => 10,
            Self::Free(_) => 11,
        }
    }
}

impl Drop for Addresses {
    fn drop(&mut self) {
        if let Ok(device) = device_of(self.device) {
            heap::give_addresses(device, self.start, self.bytes);
        }
    }
}

/// Creates an empty graph.
pub(crate) fn create() -> Result<Handle, Code> {
    GRAPHS.insert(Graph::default())
}

/// Destroys a graph and its nodes.
pub(crate) fn destroy(handle: Handle) -> CallResult {
    for node in GRAPHS.remove(handle)?.nodes {
        NODES.remove(node)?;
    }
    Ok(())
}

/// Adds a node after its dependencies.
pub(crate) fn add(graph: Handle, after: &[Handle], op: Op) -> Result<Handle, Code> {
    for node in after {
        if NODES.with(*node, |node| Ok(node.graph)) != Ok(graph) {
            return Err(Code::INVALID_VALUE);
        }
    }
    let node = NODES.insert(Node { graph, op, after: after.to_vec() })?;
    GRAPHS.with(graph, |graph| {
        graph.nodes.push(node);
        Ok(node)
    })
}

/// Whether a node is one of `last` or precedes one.
pub(crate) fn is_before(node: Handle, last: &[Handle]) -> bool {
    last.contains(&node)
        || last.iter().any(|later| {
            let after = NODES.with(*later, |later| Ok(later.after.clone()));
            after.is_ok_and(|after| is_before(node, &after))
        })
}

/// Addresses for an allocation node.
pub(crate) fn addresses(device: &Device, size: u64) -> Result<Arc<Addresses>, Code> {
    let bytes = granules(size).filter(|bytes| *bytes > 0).ok_or(Code::INVALID_VALUE)?;
    let start = heap::take_addresses(device, bytes)?;
    Ok(Arc::new(Addresses { device: device.ordinal, start, size, bytes }))
}

/// The operations of a graph.
pub(crate) fn ops(graph: Handle) -> Result<Vec<Op>, Code> {
    let nodes = GRAPHS.with(graph, |graph| Ok(graph.nodes.clone()))?;
    nodes.into_iter().map(|node| NODES.with(node, |node| Ok(node.op.clone()))).collect()
}

/// A copy of a graph.
pub(crate) fn copy_of(graph: Handle) -> Result<Handle, Code> {
    let nodes = GRAPHS.with(graph, |graph| Ok(graph.nodes.clone()))?;
    let copy = create()?;
    let mut copies: Vec<Handle> = Vec::new();
    for node in &nodes {
        let (op, after) = NODES.with(*node, |node| Ok((node.op.clone(), node.after.clone())))?;
        let place = |other: &Handle| nodes.iter().position(|node| node == other);
        let after: Vec<Handle> =
            after.iter().filter_map(place).filter_map(|index| copies.get(index).copied()).collect();
        copies.push(add(copy, &after, op)?);
    }
    Ok(copy)
}

/// Instantiates a graph.
pub(crate) fn instantiate(graph: Handle, flags: u64) -> Result<Handle, Code> {
    EXECS.insert(Exec { ops: ops(graph)?, flags })
}

/// Replaces the parameters of an instantiated graph by those of a graph of the same shape.
pub(crate) fn update(exec: Handle, graph: Handle) -> CallResult {
    let new = ops(graph)?;
    EXECS.with(exec, |exec| {
        let is_alike = exec.ops.len() == new.len()
            && exec.ops.iter().zip(&new).all(|(old, new)| old.kind() == new.kind());
        if !is_alike {
            return Err(Code::GRAPH_EXEC_UPDATE_FAILURE);
        }
        exec.ops = new;
        Ok(())
    })
}

/// Reserves the memory that a launch will need.
pub(crate) fn upload(exec: Handle) -> CallResult {
    let ops = EXECS.with(exec, |exec| Ok(exec.ops.clone()))?;
    reserve(&ops)
}

/// Launches a graph in a stream, or adds it to the graph that the stream is captured into.
pub(crate) fn launch(exec: Handle, argument: Handle, default: Default) -> CallResult {
    let handle = stream::resolve(argument, default)?;
    let (ops, flags) = EXECS.with(exec, |exec| Ok((exec.ops.clone(), exec.flags)))?;
    if capture::is_capturing(handle)? {
        return capture::add(handle, Op::Child(ops));
    }
    for addresses in allocations(&ops) {
        match heap::find(addresses.start) {
            None => {}
            Some(_) if flags & AUTO_FREE != 0 => heap::free(addresses.start)?,
            // An allocation of the last launch was not freed.
            Some(_) => return Err(Code::INVALID_VALUE),
        }
    }
    reserve(&ops)?;
    run(&ops, handle)
}

fn allocations(ops: &[Op]) -> impl Iterator<Item = &Arc<Addresses>> {
    ops.iter()
        .filter_map(|op| if let Op::Allocate(addresses) = op { Some(addresses) } else { None })
}

/// Charges GPU memory for the peak of the operations.
fn reserve(ops: &[Op]) -> CallResult {
    let Some(first) = allocations(ops).next() else { return Ok(()) };
    let device = device_of(first.device)?;
    let (mut now, mut peak) = (0_u64, 0_u64);
    for op in ops {
        match op {
            Op::Allocate(addresses) => now += addresses.bytes,
            Op::Free(start) => {
                let freed = allocations(ops).find(|addresses| addresses.start == *start);
                now = now.saturating_sub(freed.map_or(0, |addresses| addresses.bytes));
            }
            _ => {}
        }
        peak = peak.max(now);
    }
    let mut memory = lock(&device.graph_memory);
    let wanted = memory.used.current + peak;
    if let Some(more) = wanted.checked_sub(memory.reserved.current) {
        device.charge(more)?;
        memory.reserved.set(wanted);
    }
    Ok(())
}

fn run(ops: &[Op], handle: Handle) -> CallResult {
    for op in ops {
        match op {
            Op::Kernel(kernel) => STREAMS.with(handle, |stream| launch::run(kernel, stream))?,
            Op::Copy(params) => copy::copy_3d(params, handle)?,
            Op::Fill(params) => copy::fill(params, handle)?,
            Op::Host(callback) => {
                STREAMS.with(handle, |stream| callbacks::submit(handle, stream, *callback))?;
            }
            Op::Child(ops) => run(ops, handle)?,
            Op::Empty => {}
            Op::Wait(other) => event::wait(handle, *other, Default::Legacy)?,
            Op::Record(other) => event::record(*other, handle, Default::Legacy)?,
            Op::Allocate(addresses) => allocate(addresses)?,
            Op::Free(start) => heap::free(*start)?,
        }
    }
    Ok(())
}

fn allocate(addresses: &Addresses) -> CallResult {
    let Addresses { device, start, size, bytes } = *addresses;
    let mut memory = lock(&device_of(device)?.graph_memory);
    let used = memory.used.current + bytes;
    memory.used.set(used);
    heap::note(Range { start, size, device: Some(device), context: 0, kind: RangeKind::Graph });
    Ok(())
}

/// Frees memory that a graph allocated; it stays reserved for the next launch.
pub(crate) fn free(range: Range) -> CallResult {
    let device = device_of(range.device.ok_or(Code::INVALID_VALUE)?)?;
    let mut memory = lock(&device.graph_memory);
    let bytes = granules(range.size).ok_or(Code::UNKNOWN)?;
    memory.used.current = memory.used.current.saturating_sub(bytes);
    Ok(())
}

/// Frees unused graph memory of a device.
pub(crate) fn trim(device: &Device) {
    let mut memory = lock(&device.graph_memory);
    let idle = memory.reserved.current - memory.used.current;
    memory.reserved.current = memory.used.current;
    device.refund(idle);
}
