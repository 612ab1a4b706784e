//! Arrays and mipmapped arrays. The driver does not document their layout, so the guard uses three
//! numbers: the bytes of the elements, an upper bound with padding, and the decrease of the GPU's
//! free memory. The upper bound is admitted. Then the decrease is charged, clamped between the
//! other two.

mod size;

use octavo_guard_abi::charge::{PHYSICAL_GRANULE, rounded};

use self::size::Shape;
use super::info::free_memory;
use crate::cuda::{ArrayMemoryRequirements, Device, Opaque, Status};
use crate::devices;
use crate::driver::call;
use crate::platform::ffi::{In, Out};
use crate::tracking::allocation::{Allocation, free_tracked};
use crate::tracking::table::EntryKind;
use crate::tracking::vmm_memory::{self, Holder};

/// `CUDA_ARRAY_DESCRIPTOR`; before CUDA 3.2 its sides have 32 bits.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct ArrayDescriptor<S> {
    width: S,
    height: S,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`, as above.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Array3dDescriptor<S> {
    width: S,
    height: S,
    depth: S,
    format: u32,
    channels: u32,
    flags: u32,
}

impl<S: Into<u64>> From<ArrayDescriptor<S>> for Shape {
    fn from(descriptor: ArrayDescriptor<S>) -> Self {
        let ArrayDescriptor { width, height, format, channels } = descriptor;
        let sides = [width.into(), height.into(), 0];
        Self { sides, format, channels, flags: 0 }
    }
}

impl<S: Into<u64>> From<Array3dDescriptor<S>> for Shape {
    fn from(descriptor: Array3dDescriptor<S>) -> Self {
        let Array3dDescriptor { width, height, depth, format, channels, flags } = descriptor;
        Self { sides: [width.into(), height.into(), depth.into()], format, channels, flags }
    }
}

hooks! {
    CUDA, Status;

    /// An array, before CUDA 3.2.
    fn cuArrayCreate(array: Out<Opaque>, shape: In<ArrayDescriptor<u32>>) -> Status {
        let make = || real::cuArrayCreate(array, shape);
        create(EntryKind::Array, array, shape.read().map(Shape::from), 1, make)
    }

    /// An array.
    fn cuArrayCreate_v2(array: Out<Opaque>, shape: In<ArrayDescriptor<u64>>) -> Status {
        let make = || real::cuArrayCreate_v2(array, shape);
        create(EntryKind::Array, array, shape.read().map(Shape::from), 1, make)
    }

    /// An array of up to three dimensions, before CUDA 3.2.
    fn cuArray3DCreate(array: Out<Opaque>, shape: In<Array3dDescriptor<u32>>) -> Status {
        let make = || real::cuArray3DCreate(array, shape);
        create(EntryKind::Array, array, shape.read().map(Shape::from), 1, make)
    }

    /// An array of up to three dimensions.
    fn cuArray3DCreate_v2(array: Out<Opaque>, shape: In<Array3dDescriptor<u64>>) -> Status {
        let make = || real::cuArray3DCreate_v2(array, shape);
        create(EntryKind::Array, array, shape.read().map(Shape::from), 1, make)
    }

    /// A mipmapped array.
    fn cuMipmappedArrayCreate(array: Out<Opaque>, shape: In<Array3dDescriptor<u64>>, levels: u32) -> Status {
        let make = || real::cuMipmappedArrayCreate(array, shape, levels);
        create(EntryKind::Mipmap, array, shape.read().map(Shape::from), levels, make)
    }

    /// Destroys an array.
    fn cuArrayDestroy(array: Opaque) -> Status {
        destroy(EntryKind::Array, array, || real::cuArrayDestroy(array))
    }

    /// Destroys a mipmapped array.
    fn cuMipmappedArrayDestroy(array: Opaque) -> Status {
        destroy(EntryKind::Mipmap, array, || real::cuMipmappedArrayDestroy(array))
    }
}

fn create(
    kind: EntryKind,
    array: Out<Opaque>,
    shape: Option<Shape>,
    levels: u32,
    make: impl FnOnce() -> Status,
) -> Status {
    // It has no memory of its own, or the descriptor is missing and the driver will refuse it.
    let Some(shape) = shape.filter(|shape| !shape.has_no_memory()) else { return make() };
    let bytes = shape.bytes(levels);
    let before = free_memory();
    Allocation {
        kind,
        bytes: bytes.max,
        make,
        result: || {
            let array = array.read()?;
            let measured =
                before.zip(free_memory()).map(|(before, after)| before.saturating_sub(after));
            let counted = requirements(kind, array)
                .unwrap_or_else(|| measured.unwrap_or(bytes.max).clamp(bytes.min, bytes.max));
            Some((array as u64, counted))
        },
        undo: |key| match (kind, usize::try_from(key).unwrap_or(0)) {
            (EntryKind::Mipmap, array) => real::cuMipmappedArrayDestroy(array),
            (_, array) => real::cuArrayDestroy(array),
        },
    }
    .run()
}

fn destroy(kind: EntryKind, array: Opaque, end: impl FnOnce() -> Status) -> Status {
    let status = free_tracked(kind, array as u64, end);
    if status.is_success() {
        vmm_memory::release_bindings(Holder::Array(array as u64));
    }
    status
}

/// The memory requirement that the driver reports for an array. It reports few.
fn requirements(kind: EntryKind, array: Opaque) -> Option<u64> {
    let device: Device = devices::current().ok()?;
    let mut requirements = ArrayMemoryRequirements::default();
    let place = Out::to(&mut requirements);
    let status = if kind == EntryKind::Mipmap {
        call::cuMipmappedArrayGetMemoryRequirements(place, array, device)
    } else {
        call::cuArrayGetMemoryRequirements(place, array, device)
    };
    (status.is_success() && requirements.bytes > 0)
        .then(|| rounded(requirements.bytes as u64, PHYSICAL_GRANULE))
}
