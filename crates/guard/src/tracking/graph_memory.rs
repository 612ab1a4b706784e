//! Memory that graphs allocate while they run. All graphs of a GPU share one reserve. The driver
//! grows it when a graph is uploaded or launched, and shrinks it on request.
//!
//! The need of a graph is the sum of its allocation nodes, computed when it is instantiated. Each
//! launch charges the part of the need that the reserve does not have idle ([`claims`]). If the
//! driver takes more all the same, it is charged: a launch cannot be undone.

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

/// Attributes of graph memory (`CUgraphMem_attribute`).
const USED_BYTES: u32 = 0;
const RESERVED_BYTES: u32 = 2;

/// Node types (`CUgraphNodeType`).
const CHILD_GRAPH_NODE: u32 = 4;
const ALLOCATION_NODE: u32 = 10;

/// Depth to which child graphs are inspected.
const MAX_DEPTH: u32 = 16;

/// Maximum number of GPUs in a set.
const MAX_DEVICES: usize = 64;

/// Whether any graph that allocates was instantiated. Otherwise launches need no lookup.
static ANY_ALLOCATES: AtomicBool = AtomicBool::new(false);

/// Memory that a graph may need at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Bytes. A graph that allocates on several GPUs charges them on each.
    bytes: u64,
    /// One bit per GPU.
    devices: u64,
}

/// Computes the need of a graph.
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
    /// `None` if there are none, or if the driver rejects the handle; the driver will reject it
    /// again later.
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
        // JUSTIFICATION: the kernel is the only allocator.
        // SAFETY: `count` numbers were mapped, zero at first, and only the driver has written to
        // them.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // JUSTIFICATION: mapped memory is unmapped by hand.
        // SAFETY: no reference to it is left.
        unsafe { memory::unmap(self.start.cast(), self.bytes) };
    }
}

/// Records the need of an instantiated graph; nothing if it needs nothing.
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

/// Forgets an instantiated graph, if `end` succeeds.
pub(crate) fn forget_executable(executable: Opaque, end: impl FnOnce() -> Status) -> Status {
    let Ok(process) = process::get() else { return Status::NO_DEVICE };
    let entry = process.table.remove(EntryKind::Executable, executable as u64);
    let status = end();
    if let Some(entry) = entry.filter(|_| !status.is_success()) {
        // If the table is full, its memory is charged once it exists.
        let _ = process.table.insert(EntryKind::Executable, executable as u64, entry);
    }
    status
}

/// Launches or uploads a graph with `work`, with its need charged.
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

/// As above, if any graph allocates.
#[cold]
fn launch_allocating(
    executable: Opaque,
    stream: Stream,
    work: &mut dyn FnMut() -> Status,
) -> Status {
    let Ok(process) = process::get() else { return Status::NO_DEVICE };
    let of_entry = |entry: &mut Entry| Needs { bytes: entry.extra[0], devices: entry.extra[1] };
    match process.table.change(EntryKind::Executable, executable as u64, of_entry) {
        // Captured into another graph, it takes no memory now.
        Some(needs) if !stream.is_capturing() => run_with_memory(needs, work),
        _ => work(),
    }
}

/// What a launch may take on a GPU.
#[derive(Clone, Copy)]
struct Provision {
    /// Possible growth of the reserve.
    advance: Charge,
    /// Idle bytes that are claimed.
    claim: u64,
}

/// Runs `work`, for which graph memory may grow by `needs`.
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

/// Like [`run_with_memory`], for work that is not expected to need memory yet.
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
    /// Attempts of a launch that does not fit while others are under way, a millisecond apart.
    const MAX_ATTEMPTS: usize = 20;
    let mut answer = claim_and_charge(device, bytes);
    for _ in 0..MAX_ATTEMPTS {
        if !matches!(answer, Err(Status::OUT_OF_MEMORY)) {
            return answer;
        }
        // Idle bytes that another launch has claimed may be free again soon.
        if !claims::has_any(device) {
            break;
        }
        futex::sleep_milliseconds(1);
        answer = claim_and_charge(device, bytes);
    }
    if matches!(answer, Err(Status::OUT_OF_MEMORY)) && reclaim::run(device, bytes) {
        // Some of the idle memory is gone.
        answer = claim_and_charge(device, bytes);
    }
    answer.inspect_err(|_| account::note_refusal(device))
}

/// Claims idle memory and charges the remainder.
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

/// Charges the graph memory of a GPU at its current size, but at no less than launches under way
/// rely on.
pub(crate) fn settle(device: Device) {
    settle_with(device, Charge::NONE);
}

fn settle_with(device: Device, mut advance: Charge) {
    let size = || attribute(device, RESERVED_BYTES);
    // Repeated if those launches ended meanwhile: they have not seen the size recorded here.
    while reserve(device).settle_unless(advance, size, || claims::has_any(device))
        && !claims::has_any(device)
    {
        advance = Charge::NONE;
    }
}

/// Charges it after a launch.
fn settle_launch(device: Device, provision: Provision) {
    let Provision { advance, claim } = provision;
    if claim == 0 {
        claims::release(device, 0);
        return settle_with(device, advance);
    }
    // First with the claim, so that no earlier report can shrink it; then without, to include what
    // other threads did meanwhile.
    settle_with(device, advance);
    claims::release(device, claim);
    settle_with(device, Charge::NONE);
}

/// Makes the driver free unused graph memory of a GPU with `trim`, and updates the charge.
pub(crate) fn run_trim(device: Device, trim: impl FnOnce() -> Status) -> Status {
    let status = claims::with_trim(device, trim);
    settle(device);
    status
}

/// As above; returns the bytes freed.
pub(crate) fn trim(device: Device) -> u64 {
    let before = reserve(device).counted();
    if before == 0 {
        return 0;
    }
    run_trim(device, || real::cuDeviceGraphMemTrim(device));
    before.saturating_sub(reserve(device).counted())
}
