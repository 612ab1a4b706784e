//! Arrays and mipmapped arrays. How the driver lays them out it does not say, so three numbers are held against
//! one another: what the elements need, the most that padding can make of it, and by how much the GPU's free
//! memory went down. The most is admitted; what is counted then is the third, kept between the other two.

mod size;

use octavo_guard_abi::charge::{PHYSICAL_GRANULE, rounded};

use self::size::Shape;
use super::info;
use crate::allocation::{Allocation, give_back};
use crate::cuda::{ArrayNeeds, Device, Opaque, Status};
use crate::devices;
use crate::driver::call;
use crate::ffi::{In, Out};
use crate::physical::{self, Holder};
use crate::table::Kind;

/// `CUDA_ARRAY_DESCRIPTOR`, of before CUDA 3.2 with sides of 32 bits.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Flat<S> {
    width: S,
    height: S,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`, as above.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Deep<S> {
    width: S,
    height: S,
    depth: S,
    format: u32,
    channels: u32,
    flags: u32,
}

impl<S: Into<u64>> From<Flat<S>> for Shape {
    fn from(flat: Flat<S>) -> Self {
        let Flat { width, height, format, channels } = flat;
        let sides = [width.into(), height.into(), 0];
        Self { sides, format, channels, flags: 0 }
    }
}

impl<S: Into<u64>> From<Deep<S>> for Shape {
    fn from(deep: Deep<S>) -> Self {
        let Deep { width, height, depth, format, channels, flags } = deep;
        Self { sides: [width.into(), height.into(), depth.into()], format, channels, flags }
    }
}

hooks! {
    CUDA, Status;

    /// An array, by the interface of before CUDA 3.2.
    fn cuArrayCreate(array: Out<Opaque>, shape: In<Flat<u32>>) -> Status {
        let make = || real::cuArrayCreate(array, shape);
        create(Kind::Array, array, shape.read().map(Shape::from), 1, make)
    }

    /// An array.
    fn cuArrayCreate_v2(array: Out<Opaque>, shape: In<Flat<u64>>) -> Status {
        let make = || real::cuArrayCreate_v2(array, shape);
        create(Kind::Array, array, shape.read().map(Shape::from), 1, make)
    }

    /// An array of up to three dimensions, by the interface of before CUDA 3.2.
    fn cuArray3DCreate(array: Out<Opaque>, shape: In<Deep<u32>>) -> Status {
        let make = || real::cuArray3DCreate(array, shape);
        create(Kind::Array, array, shape.read().map(Shape::from), 1, make)
    }

    /// An array of up to three dimensions.
    fn cuArray3DCreate_v2(array: Out<Opaque>, shape: In<Deep<u64>>) -> Status {
        let make = || real::cuArray3DCreate_v2(array, shape);
        create(Kind::Array, array, shape.read().map(Shape::from), 1, make)
    }

    /// An array with smaller copies of itself.
    fn cuMipmappedArrayCreate(array: Out<Opaque>, shape: In<Deep<u64>>, levels: u32) -> Status {
        let make = || real::cuMipmappedArrayCreate(array, shape, levels);
        create(Kind::Mipmap, array, shape.read().map(Shape::from), levels, make)
    }

    /// Ends an array.
    fn cuArrayDestroy(array: Opaque) -> Status {
        destroy(Kind::Array, array, || real::cuArrayDestroy(array))
    }

    /// Ends an array with its smaller copies.
    fn cuMipmappedArrayDestroy(array: Opaque) -> Status {
        destroy(Kind::Mipmap, array, || real::cuMipmappedArrayDestroy(array))
    }
}

fn create(
    kind: Kind,
    array: Out<Opaque>,
    shape: Option<Shape>,
    levels: u32,
    make: impl FnOnce() -> Status,
) -> Status {
    // One that has no memory of its own, or none at all because it is no description.
    let Some(shape) = shape.filter(|shape| !shape.is_empty()) else { return make() };
    let bytes = shape.bytes(levels);
    let before = free();
    Allocation {
        kind,
        bytes: bytes.most,
        make,
        made: || {
            let array = array.read()?;
            let measured = before.zip(free()).map(|(before, after)| before.saturating_sub(after));
            let counted = needs(kind, array)
                .unwrap_or_else(|| measured.unwrap_or(bytes.most).clamp(bytes.least, bytes.most));
            Some((array as u64, counted))
        },
        undo: |key| match (kind, usize::try_from(key).unwrap_or(0)) {
            (Kind::Mipmap, array) => real::cuMipmappedArrayDestroy(array),
            (_, array) => real::cuArrayDestroy(array),
        },
    }
    .run()
}

fn destroy(kind: Kind, array: Opaque, end: impl FnOnce() -> Status) -> Status {
    let status = give_back(kind, array as u64, end);
    if status.is_success() {
        physical::gone(Holder::Array(array as u64));
    }
    status
}

/// Free memory of this thread's GPU.
fn free() -> Option<u64> {
    let (mut free, mut total) = (0, 0);
    let status = info::real::cuMemGetInfo_v2(Out::to(&mut free), Out::to(&mut total));
    status.is_success().then_some(free as u64)
}

/// What the driver says that an array needs; it says so of few.
fn needs(kind: Kind, array: Opaque) -> Option<u64> {
    let device: Device = devices::current().ok()?;
    let mut needs = ArrayNeeds::default();
    let place = Out::to(&mut needs);
    let status = if kind == Kind::Mipmap {
        call::cuMipmappedArrayGetMemoryRequirements(place, array, device)
    } else {
        call::cuArrayGetMemoryRequirements(place, array, device)
    };
    (status.is_success() && needs.bytes > 0).then(|| rounded(needs.bytes as u64, PHYSICAL_GRANULE))
}
