//! Arrays and mipmapped arrays: device memory whose address programs do not see.

use crate::abi::{Array3dDescriptor, ArrayRequirements};
use crate::code::{CallResult, Code};
use crate::context::{self, device_of};
use crate::device::Device;
use crate::memory::arena::{GRANULE, granules};
use crate::memory::heap::{self, Range, RangeKind};
use crate::table::{Handle, HandleKind, Table};

/// An array.
pub(crate) struct Array {
    pub(crate) descriptor: Array3dDescriptor,
    device: usize,
    context: Handle,
    address: u64,
    bytes: u64,
    /// Whether it is a level of a mipmapped array, which owns its memory.
    is_level: bool,
}

/// A mipmapped array.
pub(crate) struct Mipmap {
    pub(crate) descriptor: Array3dDescriptor,
    device: usize,
    context: Handle,
    bytes: u64,
    address: u64,
    levels: Vec<Handle>,
}

/// All arrays of the process.
pub(crate) static ARRAYS: Table<Array> = Table::new(HandleKind::Array);
/// All mipmapped arrays of the process.
pub(crate) static MIPMAPS: Table<Mipmap> = Table::new(HandleKind::Mipmap);

/// Position of an array's rows in memory.
pub(crate) struct Place {
    pub(crate) address: u64,
    pub(crate) pitch: u64,
    pub(crate) rows: u64,
}

/// `CUDA_ARRAY3D_DEFERRED_MAPPING`: an array without memory until some is mapped to it.
const DEFERRED: u32 = 0x80;

/// Creates an array in the current context.
pub(crate) fn create(descriptor: Array3dDescriptor) -> Result<Handle, Code> {
    let (context, device) = (context::current()?, context::here()?);
    let size = size_of_level(&descriptor, 0)?;
    let (address, bytes) = allocate(device, &descriptor, size)?;
    let is_level = false;
    let device = device.ordinal;
    ARRAYS.insert(Array { descriptor, device, context, address, bytes, is_level })
}

/// Creates a mipmapped array in the current context.
pub(crate) fn create_mipmap(descriptor: Array3dDescriptor, levels: u32) -> Result<Handle, Code> {
    let (context, device) = (context::current()?, context::here()?);
    let largest = descriptor.width.max(descriptor.height).max(descriptor.depth).max(1);
    let levels = levels.clamp(1, largest.ilog2() + 1);
    let sizes: Vec<u64> =
        (0..levels).map(|level| size_of_level(&descriptor, level)).collect::<Result<_, _>>()?;
    let (start, bytes) = allocate(device, &descriptor, sizes.iter().sum())?;
    let mut address = start;
    let mut handles = Vec::new();
    for (level, size) in (0..levels).zip(sizes) {
        handles.push(ARRAYS.insert(Array {
            descriptor: level_of(&descriptor, level),
            device: device.ordinal,
            context,
            address,
            bytes: 0,
            is_level: true,
        })?);
        address += size;
    }
    let device = device.ordinal;
    MIPMAPS.insert(Mipmap { descriptor, device, context, bytes, address: start, levels: handles })
}

/// Destroys an array. Levels end with their mipmapped array.
pub(crate) fn destroy(handle: Handle) -> CallResult {
    ARRAYS.with(handle, |array| if array.is_level { Err(Code::INVALID_HANDLE) } else { Ok(()) })?;
    let array = ARRAYS.remove(handle)?;
    release(array.device, array.address, array.bytes)
}

/// Destroys a mipmapped array and its levels.
pub(crate) fn destroy_mipmap(handle: Handle) -> CallResult {
    let mipmap = MIPMAPS.remove(handle)?;
    for level in mipmap.levels {
        ARRAYS.remove(level)?;
    }
    release(mipmap.device, mipmap.address, mipmap.bytes)
}

/// Destroys all arrays of a context.
pub(crate) fn destroy_of(context: Handle) {
    for handle in MIPMAPS.handles() {
        if MIPMAPS.with(handle, |mipmap| Ok(mipmap.context == context)) == Ok(true) {
            // It is destroyed already.
            let _ = destroy_mipmap(handle);
        }
    }
    for handle in ARRAYS.handles() {
        if ARRAYS.with(handle, |array| Ok(array.context == context)) == Ok(true) {
            // As above.
            let _ = destroy(handle);
        }
    }
}

/// A level of a mipmapped array.
pub(crate) fn level(handle: Handle, level: u32) -> Result<Handle, Code> {
    let find =
        |mipmap: &mut Mipmap| mipmap.levels.get(level as usize).copied().ok_or(Code::INVALID_VALUE);
    MIPMAPS.with(handle, find)
}

/// Position of an array's rows in memory.
pub(crate) fn place(handle: Handle) -> Result<Place, Code> {
    ARRAYS.with(handle, |array| {
        let pitch = array.descriptor.width * element(&array.descriptor)?;
        Ok(Place { address: array.address, pitch, rows: array.descriptor.height.max(1) })
    })
}

/// Memory requirements of an array.
pub(crate) fn requirements(bytes: u64) -> ArrayRequirements {
    ArrayRequirements { size: bytes, alignment: GRANULE, rest: [0; 4] }
}

/// Bytes of GPU memory of an array.
pub(crate) fn bytes_of(handle: Handle) -> Result<u64, Code> {
    let size = ARRAYS.with(handle, |array| size_of_level(&array.descriptor, 0))?;
    granules(size).ok_or(Code::INVALID_VALUE)
}

/// Bytes of GPU memory of a mipmapped array.
pub(crate) fn bytes_of_mipmap(handle: Handle) -> Result<u64, Code> {
    MIPMAPS.with(handle, |mipmap| {
        let levels = u32::try_from(mipmap.levels.len()).unwrap_or(0);
        let sizes: Result<u64, Code> =
            (0..levels).map(|level| size_of_level(&mipmap.descriptor, level)).sum();
        granules(sizes?).ok_or(Code::INVALID_VALUE)
    })
}

fn allocate(
    device: &Device,
    descriptor: &Array3dDescriptor,
    size: u64,
) -> Result<(u64, u64), Code> {
    if descriptor.flags & DEFERRED != 0 {
        return Ok((0, 0));
    }
    let bytes = granules(size).ok_or(Code::OUT_OF_MEMORY)?;
    device.charge(bytes)?;
    let start = heap::take_addresses(device, bytes).inspect_err(|_| device.refund(bytes))?;
    let (device, kind) = (Some(device.ordinal), RangeKind::Mapped);
    heap::note(Range { start, size: bytes, device, context: 0, kind });
    Ok((start, bytes))
}

fn release(device: usize, address: u64, bytes: u64) -> CallResult {
    if bytes > 0 {
        let device = device_of(device)?;
        heap::forget(address);
        heap::give_addresses(device, address, bytes);
        device.refund(bytes);
    }
    Ok(())
}

fn level_of(descriptor: &Array3dDescriptor, level: u32) -> Array3dDescriptor {
    let half = |side: u64| if side == 0 { 0 } else { (side >> level).max(1) };
    Array3dDescriptor {
        width: half(descriptor.width),
        height: half(descriptor.height),
        depth: half(descriptor.depth),
        ..*descriptor
    }
}

fn size_of_level(descriptor: &Array3dDescriptor, level: u32) -> Result<u64, Code> {
    let level = level_of(descriptor, level);
    if level.width == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let sides = [level.width, level.height.max(1), level.depth.max(1)];
    let count = sides.iter().try_fold(element(descriptor)?, |size, side| size.checked_mul(*side));
    count.ok_or(Code::INVALID_VALUE)
}

/// Bytes of an element.
fn element(descriptor: &Array3dDescriptor) -> Result<u64, Code> {
    let bytes = match descriptor.format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return Err(Code::INVALID_VALUE),
    };
    match descriptor.channels {
        1 | 2 | 4 => Ok(bytes * u64::from(descriptor.channels)),
        _ => Err(Code::INVALID_VALUE),
    }
}
