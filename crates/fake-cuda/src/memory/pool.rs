//! Pools of stream-ordered memory.
//!
//! A pool takes GPU memory in large pieces and keeps them. Freed memory is available to the pool's
//! next allocation at once. It is available to others when a synchronisation finds more idle memory
//! than the pool's threshold, or when the pool is trimmed.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering::Relaxed;

use crate::abi::{MemPoolProps, POSIX_FILE_DESCRIPTOR};
use crate::code::{CallResult, Code};
use crate::context::device_of;
use crate::device::Device;
use crate::memory::arena::{self, GRANULE, granules};
use crate::memory::heap::{self, Range, RangeKind};
use crate::memory::ipc::{self, IpcHandle};
use crate::memory::spans::FreeList;
use crate::table::{Handle, HandleKind, Table, lock};

/// A pool.
pub(crate) struct Pool {
    pub(crate) device: usize,
    pub(crate) is_default: bool,
    pub(crate) props: MemPoolProps,
    /// Maximum reserved bytes; 0 for no limit.
    max: u64,
    /// Bytes kept at a synchronisation.
    threshold: u64,
    reserved: PeakGauge,
    used: PeakGauge,
    /// Reuse attributes, by number.
    reuse: [u64; 4],
    pieces: Vec<Piece>,
    is_destroyed: bool,
    /// It belongs to another process: nothing can be allocated from it here.
    is_imported: bool,
}

/// A number and its high-water mark since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PeakGauge {
    pub(crate) current: u64,
    pub(crate) high: u64,
}

impl PeakGauge {
    pub(crate) fn set(&mut self, value: u64) {
        self.current = value;
        self.high = self.high.max(value);
    }
}

struct Piece {
    start: u64,
    bytes: u64,
    spans: FreeList,
}

impl Piece {
    fn holds(&self, range: &Range) -> bool {
        self.start <= range.start && range.start + range.size <= self.start + self.bytes
    }
}

/// First bytes of the file of an exported pool.
const SHARED: &[u8] = b"octavo pool ";

/// All pools of the process.
pub(crate) static POOLS: Table<Pool> = Table::new(HandleKind::Pool);

/// Minimum bytes that a pool reserves at once.
const MIN_PIECE_BYTES: u64 = 32 << 20;
/// Allocations are multiples of this.
const SMALL_ALIGNMENT: u64 = 512;

/// Numbers of a pool's attributes (`CUmemPool_attribute`).
mod attribute {
    pub(super) const FIRST_REUSE: u32 = 1;
    pub(super) const LAST_REUSE: u32 = 3;
    pub(super) const RELEASE_THRESHOLD: u32 = 4;
    pub(super) const RESERVED_CURRENT: u32 = 5;
    pub(super) const RESERVED_HIGH: u32 = 6;
    pub(super) const USED_CURRENT: u32 = 7;
    pub(super) const USED_HIGH: u32 = 8;
}

/// Creates a pool of a device.
pub(crate) fn create(
    device: &Device,
    props: MemPoolProps,
    is_default: bool,
) -> Result<Handle, Code> {
    POOLS.insert(Pool {
        device: device.ordinal,
        is_default,
        props,
        max: props.max_size(),
        threshold: 0,
        reserved: PeakGauge::default(),
        used: PeakGauge::default(),
        reuse: [1; 4],
        pieces: Vec::new(),
        is_destroyed: false,
        is_imported: false,
    })
}

/// A file descriptor that identifies a pool to other processes. It contains no memory, which is
/// shared by pointers.
pub(crate) fn export(handle: Handle) -> Result<OwnedFd, Code> {
    let device = POOLS.with(handle, |pool| {
        let is_exportable = pool.props.handle_types & POSIX_FILE_DESCRIPTOR != 0;
        if is_exportable && !pool.is_imported { Ok(pool.device) } else { Err(Code::INVALID_VALUE) }
    })?;
    let file = arena::memory_file(SHARED.len() as u64 + 1).map_err(|_| Code::OPERATING_SYSTEM)?;
    let number = u8::try_from(device).map_err(|_| Code::INVALID_DEVICE)?;
    let written = file.write_all_at(&[SHARED, &[number]].concat(), 0);
    written.map_err(|_| Code::OPERATING_SYSTEM)?;
    Ok(file.into())
}

/// A pool of another process, by its exported descriptor.
pub(crate) fn import(file: &File) -> Result<Handle, Code> {
    let mut bytes = [0; SHARED.len() + 1];
    file.read_exact_at(&mut bytes, 0).map_err(|_| Code::INVALID_VALUE)?;
    let (number, text) = bytes.split_last().ok_or(Code::INVALID_VALUE)?;
    if text != SHARED {
        return Err(Code::INVALID_VALUE);
    }
    let device = device_of(usize::from(*number))?;
    let handle = create(device, MemPoolProps::on(device.ordinal), false)?;
    POOLS.with(handle, |pool| {
        pool.is_imported = true;
        Ok(handle)
    })
}

/// Export data of an allocation, for other processes.
pub(crate) fn export_pointer(address: u64) -> Result<IpcHandle, Code> {
    let range = heap::find(address).filter(|range| range.start == address);
    let range = range.ok_or(Code::INVALID_VALUE)?;
    let RangeKind::Pooled(pool) = range.kind else { return Err(Code::INVALID_VALUE) };
    let (start, bytes) = POOLS.with(pool, |pool| {
        let is_exportable = pool.props.handle_types & POSIX_FILE_DESCRIPTOR != 0;
        let piece = pool.pieces.iter().find(|piece| piece.holds(&range));
        let piece = piece.filter(|_| is_exportable).ok_or(Code::INVALID_VALUE)?;
        Ok((piece.start, piece.bytes))
    })?;
    ipc::handle_within(range, start, bytes)
}

/// An allocation from a pool of another process.
pub(crate) fn import_pointer(pool: Handle, exported: &IpcHandle) -> Result<u64, Code> {
    if POOLS.with(pool, |pool| Ok(pool.is_imported)) != Ok(true) {
        return Err(Code::INVALID_VALUE);
    }
    ipc::open(exported, 0, RangeKind::ImportedFromPool)
}

/// A device's default pool.
pub(crate) fn default_of(device: &Device) -> Result<Handle, Code> {
    let mut pools = lock(&device.pools);
    if pools.0 == 0 {
        pools.0 = create(device, MemPoolProps::on(device.ordinal), true)?;
        pools.1 = pools.0;
    }
    Ok(pools.0)
}

/// The current pool of a device.
pub(crate) fn current_of(device: &Device) -> Result<Handle, Code> {
    default_of(device)?;
    Ok(lock(&device.pools).1)
}

/// Sets the current pool of a device.
pub(crate) fn set_current(device: &Device, pool: Handle) -> CallResult {
    default_of(device)?;
    let is_there = POOLS.with(pool, |pool| Ok(pool.device == device.ordinal && !pool.is_destroyed));
    if is_there != Ok(true) {
        return Err(Code::INVALID_VALUE);
    }
    lock(&device.pools).1 = pool;
    Ok(())
}

/// Destroys a pool. Its allocations and their memory outlive it.
pub(crate) fn destroy(handle: Handle) -> CallResult {
    let (device, is_empty) = POOLS.with(handle, |pool| {
        if pool.is_default {
            return Err(Code::INVALID_VALUE);
        }
        pool.is_destroyed = true;
        pool.trim(0)?;
        Ok((device_of(pool.device)?, pool.pieces.is_empty()))
    })?;
    let mut pools = lock(&device.pools);
    if pools.1 == handle {
        pools.1 = pools.0;
    }
    if is_empty { POOLS.remove(handle).map(drop) } else { Ok(()) }
}

/// Allocates from a pool.
pub(crate) fn allocate(handle: Handle, size: u64) -> Result<u64, Code> {
    if size == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let (start, device) = POOLS.with(handle, |pool| {
        if pool.is_destroyed || pool.is_imported {
            return Err(Code::INVALID_VALUE);
        }
        let bytes = size.checked_next_multiple_of(SMALL_ALIGNMENT).ok_or(Code::OUT_OF_MEMORY)?;
        let start = pool.take(bytes)?;
        pool.used.set(pool.used.current + bytes);
        Ok((start, pool.device))
    })?;
    let kind = RangeKind::Pooled(handle);
    heap::note(Range { start, size, device: Some(device), context: 0, kind });
    Ok(start)
}

/// Frees an allocation to its pool.
pub(crate) fn free(handle: Handle, range: Range) -> CallResult {
    let is_gone = POOLS.with(handle, |pool| {
        let bytes = range.size.next_multiple_of(SMALL_ALIGNMENT);
        pool.used.current = pool.used.current.saturating_sub(bytes);
        let piece = pool.pieces.iter_mut().find(|piece| piece.holds(&range));
        let piece = piece.ok_or(Code::UNKNOWN)?;
        piece.spans.release(range.start, bytes);
        device_of(pool.device)?.note_idle_pool();
        if pool.is_destroyed {
            pool.trim(0)?;
        }
        Ok(pool.is_destroyed && pool.pieces.is_empty())
    })?;
    if is_gone { POOLS.remove(handle).map(drop) } else { Ok(()) }
}

/// Frees a pool's idle memory, but for `keep` bytes.
pub(crate) fn trim(handle: Handle, keep: u64) -> CallResult {
    POOLS.with(handle, |pool| pool.trim(keep))
}

/// Effect of a synchronisation: pools keep no more than their thresholds.
pub(crate) fn synchronized(device: &Device) {
    if !device.has_idle_pools.load(Relaxed) {
        return;
    }
    device.has_idle_pools.store(false, Relaxed);
    each_of(device, |pool| pool.trim(pool.threshold));
}

/// Frees all idle memory of a device's pools, once this process has no context on it.
pub(crate) fn release_all(device: &Device) {
    each_of(device, |pool| pool.trim(0));
}

fn each_of(device: &Device, mut body: impl FnMut(&mut Pool) -> CallResult) {
    for handle in POOLS.handles() {
        // A destroyed pool has nothing to free.
        let _ = POOLS.with(
            handle,
            |pool| {
                if pool.device == device.ordinal { body(pool) } else { Ok(()) }
            },
        );
    }
}

impl Pool {
    fn take(&mut self, bytes: u64) -> Result<u64, Code> {
        if let Some(start) = self.pieces.iter_mut().find_map(|piece| piece.spans.allocate(bytes)) {
            return Ok(start);
        }
        let device = device_of(self.device)?;
        let least = granules(bytes).ok_or(Code::OUT_OF_MEMORY)?;
        let much = least.max(MIN_PIECE_BYTES);
        let size = [much, least].into_iter().find(|size| self.reserve(device, *size));
        let size = size.ok_or(Code::OUT_OF_MEMORY)?;
        let taken = heap::take_addresses(device, size);
        let start = taken.inspect_err(|_| device.refund(size))?;
        self.reserved.set(self.reserved.current + size);
        let mut spans = FreeList::new(start, size);
        let place = spans.allocate(bytes).ok_or(Code::UNKNOWN)?;
        self.pieces.push(Piece { start, bytes: size, spans });
        Ok(place)
    }

    fn reserve(&self, device: &Device, bytes: u64) -> bool {
        let after = self.reserved.current.saturating_add(bytes);
        let most = self.max.next_multiple_of(GRANULE);
        (self.max == 0 || after <= most) && device.charge(bytes).is_ok()
    }

    fn trim(&mut self, keep: u64) -> CallResult {
        let device = device_of(self.device)?;
        let mut reserved = self.reserved.current;
        self.pieces.retain(|piece| {
            if reserved <= keep || !piece.spans.is_unused() {
                return true;
            }
            reserved -= piece.bytes;
            heap::give_granules(device, piece.start, piece.bytes);
            false
        });
        self.reserved.current = reserved;
        Ok(())
    }

    /// Value of an attribute, and whether it has 64 bits; reuse attributes have 32.
    pub(crate) fn attribute(&self, number: u32) -> Result<(u64, bool), Code> {
        Ok(match number {
            attribute::FIRST_REUSE..=attribute::LAST_REUSE => (self.reuse[number as usize], false),
            attribute::RELEASE_THRESHOLD => (self.threshold, true),
            attribute::RESERVED_CURRENT => (self.reserved.current, true),
            attribute::RESERVED_HIGH => (self.reserved.high, true),
            attribute::USED_CURRENT => (self.used.current, true),
            attribute::USED_HIGH => (self.used.high, true),
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    /// Whether an attribute has 64 bits.
    pub(crate) fn is_wide(number: u32) -> bool {
        number >= attribute::RELEASE_THRESHOLD
    }

    pub(crate) fn set_attribute(&mut self, number: u32, value: u64) -> CallResult {
        match number {
            attribute::FIRST_REUSE..=attribute::LAST_REUSE => self.reuse[number as usize] = value,
            attribute::RELEASE_THRESHOLD => self.threshold = value,
            // High-water marks can only be reset.
            attribute::RESERVED_HIGH if value == 0 => self.reserved.high = self.reserved.current,
            attribute::USED_HIGH if value == 0 => self.used.high = self.used.current,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }
}
