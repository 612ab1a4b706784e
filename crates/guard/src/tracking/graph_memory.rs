//! Memory that graphs allocate while they run. All graphs of a GPU have it from one reserve, which the driver
//! makes larger when a graph is uploaded or launched, and smaller when it is told to.
//!
//! What a graph may need is the sum of its nodes that allocate, which is looked up when it is made ready; before
//! each launch so much is provide as the reserve does not have idle ([`claims`]). Should the driver take more none
//! the less it is counted: a launch cannot be undone.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};

use octavo_guard_abi::charge::{PHYSICAL_GRANULE, rounded};

use crate::cuda::{AllocationNode, Device, Opaque, Status};
use crate::driver::call;
use crate::hooks::graphs::real;
use crate::platform::ffi::Out;
use crate::platform::sys::{futex, memory};
use crate::process;
use crate::tracking::account::reserve::Reserve;
use crate::tracking::account::{self, Charge, reclaim};
use crate::tracking::streams::Stream;
use crate::tracking::table::{Entry, EntryKind};

mod claims;

/// Attributes of the memory of graphs (`CUgraphMem_attribute`).
const USED_BYTES: u32 = 0;
const RESERVED_BYTES: u32 = 2;

/// Types of nodes (`CUgraphNodeType`).
const CHILD_GRAPH_NODE: u32 = 4;
const ALLOCATION_NODE: u32 = 10;

/// As deep as graphs are looked into.
const MAX_DEPTH: u32 = 16;

/// GPUs that a set of them has room for.
const MAX_DEVICES: usize = 64;

/// Whether any graph that allocates was made ready: launches of others need not look for it.
static ANY_ALLOCATES: AtomicBool = AtomicBool::new(false);

/// What a graph may need at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Bytes. Of a graph that allocates on several GPUs they are asked for on each of them.
    bytes: u64,
    /// A bit for each GPU.
    devices: u64,
}

/// What a graph may need.
pub(crate) fn needs(graph: Opaque) -> Result<Needs, Status> {
    let mut needs = Needs::default();
    add_needs(graph, MAX_DEPTH, &mut needs)?;
    Ok(needs)
}

fn add_needs(graph: Opaque, depth: u32, needs: &mut Needs) -> Result<(), Status> {
    let Some(nodes) = Nodes::of(graph)? else { return Ok(()) };
    for node in nodes.all().iter().copied() {
        let mut kind = 0;
        if !call::cuGraphNodeGetType(node, Out::to(&mut kind)).is_success() {
            continue;
        }
        let (mut child, mut allocation) = (0, AllocationNode::default());
        if kind == CHILD_GRAPH_NODE
            && depth > 0
            && call::cuGraphChildGraphNodeGetGraph(node, Out::to(&mut child)).is_success()
        {
            add_needs(child, depth - 1, needs)?;
        } else if kind == ALLOCATION_NODE
            && call::cuGraphMemAllocNodeGetParams(node, Out::to(&mut allocation)).is_success()
        {
            let device = allocation.location.device().and_then(|device| u32::try_from(device).ok());
            needs.devices |= 1_u64.checked_shl(device.unwrap_or(0)).unwrap_or(0);
            let bytes = rounded(allocation.bytes as u64, PHYSICAL_GRANULE);
            needs.bytes = needs.bytes.saturating_add(bytes);
        }
    }
    Ok(())
}

/// The nodes of a graph.
struct Nodes {
    start: NonNull<Opaque>,
    count: usize,
    bytes: usize,
}

impl Nodes {
    /// None where there are none, or the driver says that this is no graph: it will say so again.
    fn of(graph: Opaque) -> Result<Option<Self>, Status> {
        let mut count = 0;
        let status = call::cuGraphGetNodes(graph, 0, Out::to(&mut count));
        if !status.is_success() || count == 0 {
            return Ok(None);
        }
        let bytes = count * size_of::<Opaque>();
        let start = memory::map_anonymous(bytes).map_err(|_| Status::OUT_OF_MEMORY)?.cast();
        let mut nodes = Self { start, count, bytes };
        let address = start.as_ptr().expose_provenance();
        let status = call::cuGraphGetNodes(graph, address, Out::to(&mut nodes.count));
        nodes.count = if status.is_success() { nodes.count.min(count) } else { 0 };
        Ok(Some(nodes))
    }

    fn all(&self) -> &[Opaque] {
        // JUSTIFICATION: there is no allocator but the kernel.
        // SAFETY: so many numbers were mapped, zero at first, and only the driver has written to them.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // JUSTIFICATION: mapped memory is given back by hand.
        // SAFETY: nobody refers to it any more.
        unsafe { memory::unmap(self.start.cast(), self.bytes) };
    }
}

/// Remembers what a graph that was made ready needs; nothing if it needs nothing.
pub(crate) fn record_executable(executable: Opaque, needs: Needs) -> Result<(), Status> {
    let table = &process::get()?.table;
    if needs.bytes == 0 {
        if ANY_ALLOCATES.load(Ordering::Relaxed) {
            table.remove(EntryKind::Executable, executable as u64);
        }
        return Ok(());
    }
    ANY_ALLOCATES.store(true, Ordering::Relaxed);
    let entry = Entry { charge: Charge::NONE, context: 0, extra: [needs.bytes, needs.devices] };
    let kept = table.insert(EntryKind::Executable, executable as u64, entry);
    kept.map(drop).map_err(|_| Status::OUT_OF_MEMORY)
}

/// Forgets a graph that was made ready, if `end` succeeds.
pub(crate) fn forget_executable(executable: Opaque, end: impl FnOnce() -> Status) -> Status {
    let Ok(process) = process::get() else { return Status::NO_DEVICE };
    let entry = process.table.remove(EntryKind::Executable, executable as u64);
    let status = end();
    if let Some(entry) = entry.filter(|_| !status.is_success()) {
        // Full: its memory will be counted when it is there.
        let _ = process.table.insert(EntryKind::Executable, executable as u64, entry);
    }
    status
}

/// Launches or uploads a graph by `work`, with what it needs counted.
#[inline]
pub(crate) fn with_memory(
    executable: Opaque,
    stream: Stream,
    mut work: impl FnMut() -> Status,
) -> Status {
    if ANY_ALLOCATES.load(Ordering::Relaxed) {
        launch_allocating(executable, stream, &mut work)
    } else {
        work()
    }
}

/// As above, where some graph allocates.
#[cold]
fn launch_allocating(
    executable: Opaque,
    stream: Stream,
    work: &mut dyn FnMut() -> Status,
) -> Status {
    let Ok(process) = process::get() else { return Status::NO_DEVICE };
    let of_entry = |entry: &mut Entry| Needs { bytes: entry.extra[0], devices: entry.extra[1] };
    match process.table.change(EntryKind::Executable, executable as u64, of_entry) {
        // Into a graph that is being made it goes without memory.
        Some(needs) if !stream.is_capturing() => run_with_memory(needs, work),
        _ => work(),
    }
}

/// What a launch may take on a GPU.
#[derive(Clone, Copy)]
struct Provision {
    /// What the reserve may grow by.
    advance: Charge,
    /// Idle bytes that are claim_and_charge.
    claim: u64,
}

/// Does work for which the memory of graphs may grow by so much.
pub(crate) fn run_with_memory(needs: Needs, work: &mut dyn FnMut() -> Status) -> Status {
    let mut provisions = [Provision { advance: Charge::NONE, claim: 0 }; MAX_DEVICES];
    let mut answer = Ok(());
    for (device, place) in (0..).zip(&mut provisions) {
        if needs.devices >> device & 1 == 0 {
            continue;
        }
        match reserve(device).open(0).and_then(|()| provide(device, needs.bytes)) {
            Ok(provision) => *place = provision,
            Err(status) => {
                answer = Err(status);
                break;
            }
        }
    }
    let status = match answer {
        Ok(()) => work(),
        Err(status) => status,
    };
    for (device, provision) in (0..).zip(provisions) {
        if needs.devices >> device & 1 != 0 {
            settle_launch(device, provision);
        }
    }
    status
}

/// As [`run_with_memory`] for work that is not expected to need any yet.
pub(crate) fn run_and_settle(needs: Needs, work: &mut dyn FnMut() -> Status) -> Status {
    let status = work();
    for device in devices(needs) {
        if reserve(device).open(0).is_ok() {
            settle(device);
        }
    }
    status
}

fn devices(needs: Needs) -> impl Iterator<Item = Device> {
    (0..Device::BITS.cast_signed() * 2).filter(move |device| needs.devices >> device & 1 != 0)
}

fn provide(device: Device, bytes: u64) -> Result<Provision, Status> {
    /// How often a launch that does not fit looks again while others are under way, a millisecond apart.
    const MAX_ATTEMPTS: usize = 20;
    let mut answer = claim_and_charge(device, bytes);
    for _ in 0..MAX_ATTEMPTS {
        if !matches!(answer, Err(Status::OUT_OF_MEMORY)) {
            return answer;
        }
        // Idle bytes that another launch has claim_and_charge may be free again in a moment.
        if !claims::has_any(device) {
            break;
        }
        futex::sleep_milliseconds(1);
        answer = claim_and_charge(device, bytes);
    }
    if matches!(answer, Err(Status::OUT_OF_MEMORY)) && reclaim::run(device, bytes) {
        // Some of what was idle is gone.
        answer = claim_and_charge(device, bytes);
    }
    answer.inspect_err(|_| account::note_refusal(device))
}

/// Claims what is idle and counts the rest.
fn claim_and_charge(device: Device, bytes: u64) -> Result<Provision, Status> {
    let claim = claims::claim(device, bytes, || idle(device));
    let advance = reserve(device).advance(bytes - claim);
    let advance = advance.inspect_err(|_| claims::release(device, claim))?;
    Ok(Provision { advance, claim })
}

fn reserve(device: Device) -> Reserve {
    Reserve { kind: EntryKind::GraphMemory, key: u64::from(device.cast_unsigned()), device }
}

fn attribute(device: Device, attribute: u32) -> Option<u64> {
    let mut value = 0;
    let status = call::cuDeviceGetGraphMemAttribute(device, attribute, Out::to(&mut value));
    status.is_success().then_some(value)
}

fn idle(device: Device) -> u64 {
    let reserved = attribute(device, RESERVED_BYTES).unwrap_or(0);
    attribute(device, USED_BYTES).map_or(0, |used| reserved.saturating_sub(used))
}

/// Counts the memory of a GPU's graphs for what it is now, but for no less than launches under way rely on.
pub(crate) fn settle(device: Device) {
    settle_with(device, Charge::NONE);
}

fn settle_with(device: Device, mut advance: Charge) {
    let size = || attribute(device, RESERVED_BYTES);
    // Again if those are done in the meantime: they have not seen what is entered here.
    while reserve(device).settle_unless(advance, size, || claims::has_any(device))
        && !claims::has_any(device)
    {
        advance = Charge::NONE;
    }
}

/// Counts it after a launch.
fn settle_launch(device: Device, provision: Provision) {
    let Provision { advance, claim } = provision;
    if claim == 0 {
        claims::release(device, 0);
        return settle_with(device, advance);
    }
    // With its claim, so that no answer of before can undo it; and without, for what others did meanwhile.
    settle_with(device, advance);
    claims::release(device, claim);
    settle_with(device, Charge::NONE);
}

/// Has the driver give back what the graphs of a GPU do not use, and counts what is left.
pub(crate) fn run_trim(device: Device, trim: impl FnOnce() -> Status) -> Status {
    let status = claims::with_trim(device, trim);
    settle(device);
    status
}

/// As above; gives how much came back.
pub(crate) fn trim(device: Device) -> u64 {
    let before = reserve(device).counted();
    if before == 0 {
        return 0;
    }
    run_trim(device, || real::cuDeviceGraphMemTrim(device));
    before.saturating_sub(reserve(device).counted())
}
