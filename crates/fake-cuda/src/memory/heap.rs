//! Allocations with an address: their owner, kind and release.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::code::{CallResult, Code};
use crate::context;
use crate::device::Device;
use crate::memory::arena::{self, GRANULE, granules};
use crate::memory::ipc;
use crate::memory::mappings;
use crate::memory::pool;
use crate::memory::spans::FreeList;
use crate::table::{Handle, lock};

/// An allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) start: u64,
    /// Requested bytes.
    pub(crate) size: u64,
    /// Ordinal of the device; `None` for host memory.
    pub(crate) device: Option<usize>,
    /// The context that it ends with; 0 for none.
    pub(crate) context: Handle,
    pub(crate) kind: RangeKind,
}

/// Kind of an allocation, with the data needed to free it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeKind {
    /// Part of a slab.
    Small,
    /// Granules of its own, with their bytes.
    Large(u64),
    /// Granules at a 32-bit address.
    Low(u64),
    /// Managed memory, which moves between host and device.
    Managed {
        /// Size in addresses.
        bytes: u64,
        /// Bytes on the device.
        resident: u64,
    },
    /// Host memory that the library allocated.
    Pinned(u64),
    /// Host memory that was only registered.
    Registered,
    /// From a pool.
    Pooled(Handle),
    /// From a node of a graph.
    Graph,
    /// From another process.
    Imported,
    /// From a pool of another process.
    ImportedFromPool,
    /// Mapped by the caller.
    Mapped,
}

/// Allocations up to this size share granules.
const MAX_SMALL_BYTES: u64 = 1 << 20;
/// Small allocations are multiples of this.
const SMALL_ALIGNMENT: u64 = 512;
/// Addresses of a device per byte of its capacity.
const ADDRESSES_PER_BYTE: u64 = 4;

static HEAP: Mutex<Heap> =
    Mutex::new(Heap { ranges: BTreeMap::new(), arenas: BTreeMap::new(), touched: BTreeSet::new() });

struct Heap {
    /// By start address.
    ranges: BTreeMap<u64, Range>,
    /// By ordinal of the device.
    arenas: BTreeMap<usize, Arena>,
    /// Granules that were written to.
    touched: BTreeSet<u64>,
}

struct Arena {
    start: u64,
    spans: FreeList,
    /// Granules of small allocations, each of one context: the context, and the free parts.
    slabs: BTreeMap<u64, (Handle, FreeList)>,
}

/// Allocates device memory.
pub(crate) fn allocate(device: &Device, context: Handle, size: u64) -> Result<u64, Code> {
    if size == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut heap = heap();
    let (start, kind) = if size <= MAX_SMALL_BYTES {
        (
            heap.take_small(device, context, size.next_multiple_of(SMALL_ALIGNMENT))?,
            RangeKind::Small,
        )
    } else {
        let bytes = granules(size).ok_or(Code::OUT_OF_MEMORY)?;
        device.charge(bytes)?;
        let start = heap.take(device, bytes).inspect_err(|_| device.refund(bytes))?;
        (start, RangeKind::Large(bytes))
    };
    heap.note(Range { start, size, device: Some(device.ordinal), context, kind });
    Ok(start)
}

/// Allocates device memory at a 32-bit address, for the oldest programs.
pub(crate) fn allocate_low(device: &Device, context: Handle, size: u64) -> Result<u64, Code> {
    let bytes = granules(size).filter(|bytes| *bytes > 0).ok_or(Code::INVALID_VALUE)?;
    device.charge(bytes)?;
    let Ok(start) = arena::reserve_low(bytes) else {
        device.refund(bytes);
        return Err(Code::OUT_OF_MEMORY);
    };
    let kind = RangeKind::Low(bytes);
    heap().note(Range { start, size, device: Some(device.ordinal), context, kind });
    Ok(start)
}

/// Allocates managed memory.
pub(crate) fn allocate_managed(device: &Device, context: Handle, size: u64) -> Result<u64, Code> {
    let bytes = granules(size).filter(|bytes| *bytes > 0).ok_or(Code::INVALID_VALUE)?;
    let start = arena::reserve(bytes, 1).map_err(|_| Code::OUT_OF_MEMORY)?;
    let kind = RangeKind::Managed { bytes, resident: 0 };
    heap().note(Range { start, size, device: Some(device.ordinal), context, kind });
    Ok(start)
}

/// Allocates host memory.
pub(crate) fn allocate_pinned(context: Handle, size: u64) -> Result<u64, Code> {
    let bytes = granules(size).filter(|bytes| *bytes > 0).ok_or(Code::INVALID_VALUE)?;
    let start = arena::reserve(bytes, 1).map_err(|_| Code::OUT_OF_MEMORY)?;
    heap().note(Range { start, size, device: None, context, kind: RangeKind::Pinned(bytes) });
    Ok(start)
}

/// Registers host memory.
pub(crate) fn register(context: Handle, start: u64, size: u64) -> CallResult {
    if start == 0 || size == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let mut heap = heap();
    let end = start.checked_add(size).ok_or(Code::INVALID_VALUE)?;
    let before = heap.ranges.range(..end).next_back();
    if before.is_some_and(|(_, range)| range.start + range.size > start) {
        return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
    }
    heap.note(Range { start, size, device: None, context, kind: RangeKind::Registered });
    Ok(())
}

/// Unregisters host memory.
pub(crate) fn unregister(start: u64) -> CallResult {
    let mut heap = heap();
    let known = heap.ranges.get(&start).filter(|range| range.kind == RangeKind::Registered);
    known.ok_or(Code::HOST_MEMORY_NOT_REGISTERED)?;
    heap.ranges.remove(&start);
    Ok(())
}

/// Stores a number of 4 or 8 bytes, as the GPU does it: at once for all threads. Nothing is stored if the memory is gone.
pub(crate) fn store(address: u64, value: u64, bytes: u64) {
    let is_within = |range: Range| address + bytes <= range.start + range.size;
    if !find(address).is_some_and(is_within) {
        return;
    }
    let place = usize::try_from(address).unwrap_or(0);
    if bytes == 8 {
        // JUSTIFICATION: the GPU writes where the program said.
        // SAFETY: the memory is allocated or registered, as the program must keep it until the write; the address was
        // checked for alignment when the write was queued.
        let word = unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(place)) };
        word.store(value, Ordering::Release);
    } else {
        // JUSTIFICATION: as above.
        // SAFETY: as above.
        let word = unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(place)) };
        word.store(u32::try_from(value).unwrap_or(u32::MAX), Ordering::Release);
    }
}

/// Records an allocation made elsewhere.
pub(crate) fn note(range: Range) {
    heap().note(range);
}

/// Removes an allocation made elsewhere.
pub(crate) fn forget(start: u64) -> Option<Range> {
    heap().ranges.remove(&start)
}

/// Frees device memory of any kind.
pub(crate) fn free(start: u64) -> CallResult {
    if start == 0 {
        return Ok(());
    }
    let mut heap = heap();
    let range = *heap.ranges.get(&start).ok_or(Code::INVALID_VALUE)?;
    match range.kind {
        RangeKind::Pinned(_) | RangeKind::Registered | RangeKind::Imported | RangeKind::Mapped => {
            Err(Code::INVALID_VALUE)
        }
        RangeKind::ImportedFromPool => {
            heap.ranges.remove(&start);
            drop(heap);
            ipc::forget(range);
            Ok(())
        }
        RangeKind::Pooled(pool) => {
            heap.ranges.remove(&start);
            drop(heap);
            pool::free(pool, range)
        }
        RangeKind::Graph => {
            heap.ranges.remove(&start);
            drop(heap);
            crate::execution::graph::free(range)
        }
        RangeKind::Small | RangeKind::Large(_) | RangeKind::Low(_) | RangeKind::Managed { .. } => {
            heap.ranges.remove(&start);
            heap.release(range)
        }
    }
}

/// Frees host memory.
pub(crate) fn free_pinned(start: u64) -> CallResult {
    let mut heap = heap();
    let range = *heap.ranges.get(&start).ok_or(Code::INVALID_VALUE)?;
    let RangeKind::Pinned(bytes) = range.kind else { return Err(Code::INVALID_VALUE) };
    heap.ranges.remove(&start);
    arena::unmap(start, bytes);
    Ok(())
}

/// Whether the process has managed memory.
pub(crate) fn has_managed() -> bool {
    heap().ranges.values().any(|range| matches!(range.kind, RangeKind::Managed { .. }))
}

/// Moves all allocations of a context to another one; 0 for none.
pub(crate) fn move_to(from: Handle, to: Handle) {
    for range in heap().ranges.values_mut().filter(|range| range.context == from) {
        range.context = to;
    }
}

/// Frees all allocations of a context.
pub(crate) fn free_of(context: Handle) {
    let mut heap = heap();
    let of_context = |range: &&Range| range.context == context;
    let ranges: Vec<Range> = heap.ranges.values().filter(of_context).copied().collect();
    for range in ranges {
        heap.ranges.remove(&range.start);
        match range.kind {
            RangeKind::Pinned(bytes) => arena::unmap(range.start, bytes),
            RangeKind::Imported => ipc::forget(range),
            // What cannot be released now is released with the process.
            _ => drop(heap.release(range)),
        }
    }
}

/// Allocates addresses of a device, in whole granules.
pub(crate) fn take_addresses(device: &Device, bytes: u64) -> Result<u64, Code> {
    heap().take(device, bytes)
}

/// Releases granules with their memory; other processes keep what they share of it.
pub(crate) fn give_granules(device: &Device, start: u64, bytes: u64) {
    heap().release_granules(device, start, bytes);
}

/// Releases addresses; their contents are discarded.
pub(crate) fn give_addresses(device: &Device, start: u64, bytes: u64) {
    heap().give(device.ordinal, start, bytes);
}

/// Where the addresses of a device begin, if it has any.
pub(crate) fn addresses_of(device: usize) -> Option<u64> {
    heap().arenas.get(&device).map(|arena| arena.start)
}

/// The allocation at an address.
pub(crate) fn find(address: u64) -> Option<Range> {
    let heap = heap();
    let found = heap.ranges.range(..=address).next_back().map(|(_, range)| *range);
    drop(heap);
    found.filter(|range| address - range.start < range.size).or_else(|| mappings::find(address))
}

/// Records that bytes will be written.
pub(crate) fn touch(address: u64, bytes: u64) {
    let mut heap = heap();
    let mut at = address / GRANULE * GRANULE;
    while at < address + bytes {
        heap.touched.insert(at);
        at += GRANULE;
    }
}

/// The granules of a device allocation: start and bytes.
pub(crate) fn granules_of(range: &Range) -> Option<(u64, u64)> {
    match range.kind {
        RangeKind::Small => Some((range.start / GRANULE * GRANULE, GRANULE)),
        RangeKind::Large(bytes) => Some((range.start, bytes)),
        _ => None,
    }
}

/// Moves managed memory to its device or to the host. What does not fit stays.
pub(crate) fn prefetch(start: u64, size: u64, to_device: bool) -> CallResult {
    let range = find(start).ok_or(Code::INVALID_VALUE)?;
    let RangeKind::Managed { bytes, resident } = range.kind else {
        return if range.kind == RangeKind::Registered { Ok(()) } else { Err(Code::INVALID_VALUE) };
    };
    if size > range.size - (start - range.start) {
        return Err(Code::INVALID_VALUE);
    }
    let device = context::device_of(range.device.unwrap_or(0))?;
    let moved = granules(size).unwrap_or(bytes);
    let after = if to_device {
        let more = moved.min(bytes - resident);
        if device.charge(more).is_ok() { resident + more } else { resident }
    } else {
        let less = moved.min(resident);
        device.refund(less);
        resident - less
    };
    if let Some(range) = heap().ranges.get_mut(&range.start) {
        range.kind = RangeKind::Managed { bytes, resident: after };
    }
    Ok(())
}

fn heap() -> MutexGuard<'static, Heap> {
    lock(&HEAP)
}

impl Heap {
    fn note(&mut self, range: Range) {
        self.ranges.insert(range.start, range);
    }

    fn arena(&mut self, device: &Device) -> Result<&mut Arena, Code> {
        match self.arenas.entry(device.ordinal) {
            Entry::Occupied(arena) => Ok(arena.into_mut()),
            Entry::Vacant(place) => {
                let length = device.capacity / GRANULE * GRANULE * ADDRESSES_PER_BYTE;
                let start = arena::reserve(length, 1).map_err(|_| Code::OUT_OF_MEMORY)?;
                let spans = FreeList::new(start, length);
                Ok(place.insert(Arena { start, spans, slabs: BTreeMap::new() }))
            }
        }
    }

    fn take(&mut self, device: &Device, bytes: u64) -> Result<u64, Code> {
        self.arena(device)?.spans.allocate(bytes).ok_or(Code::OUT_OF_MEMORY)
    }

    fn give(&mut self, device: usize, start: u64, bytes: u64) {
        let written: Vec<u64> = self.touched.range(start..start + bytes).copied().collect();
        if ipc::is_file(start) {
            ipc::unshare(start);
            arena::map_nothing(start, bytes);
        } else if !written.is_empty() {
            arena::discard(start, bytes);
        }
        for granule in written {
            self.touched.remove(&granule);
        }
        if let Some(arena) = self.arenas.get_mut(&device) {
            arena.spans.release(start, bytes);
        }
    }

    fn take_small(&mut self, device: &Device, context: Handle, size: u64) -> Result<u64, Code> {
        let arena = self.arena(device)?;
        let of_context = arena.slabs.values_mut().filter(|(owner, _)| *owner == context);
        if let Some(start) = of_context.into_iter().find_map(|(_, slab)| slab.allocate(size)) {
            return Ok(start);
        }
        device.charge(GRANULE)?;
        let taken = arena.spans.allocate(GRANULE);
        let slab = taken.ok_or(Code::OUT_OF_MEMORY).inspect_err(|_| device.refund(GRANULE))?;
        let mut spans = FreeList::new(slab, GRANULE);
        let start = spans.allocate(size).ok_or(Code::UNKNOWN)?;
        arena.slabs.insert(slab, (context, spans));
        Ok(start)
    }

    fn release(&mut self, range: Range) -> CallResult {
        let device = context::device_of(range.device.ok_or(Code::INVALID_VALUE)?)?;
        match range.kind {
            RangeKind::Small => {
                let slab = range.start / GRANULE * GRANULE;
                let arena = self.arenas.get_mut(&device.ordinal).ok_or(Code::UNKNOWN)?;
                let (_, spans) = arena.slabs.get_mut(&slab).ok_or(Code::UNKNOWN)?;
                spans.release(range.start, range.size.next_multiple_of(SMALL_ALIGNMENT));
                if spans.is_unused() {
                    arena.slabs.remove(&slab);
                    self.release_granules(device, slab, GRANULE);
                }
            }
            RangeKind::Large(bytes) => self.release_granules(device, range.start, bytes),
            RangeKind::Low(bytes) => {
                device.refund(bytes);
                arena::unmap(range.start, bytes);
            }
            RangeKind::Managed { bytes, resident } => {
                device.refund(resident);
                arena::unmap(range.start, bytes);
            }
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }

    /// Other processes keep what they share of it.
    fn release_granules(&mut self, device: &Device, start: u64, bytes: u64) {
        let is_shared = ipc::is_file(start);
        self.give(device.ordinal, start, bytes);
        if !is_shared {
            device.refund(bytes);
        }
    }
}
