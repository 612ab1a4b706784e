//! Arrays.

use crate::cuda::{Cuda, FIRST_GPU, GIB, MIB, OUT_OF_MEMORY, ok};
use crate::{call, inside};

const FLOAT: u32 = 0x20;
const DEFERRED: u32 = 0x80;

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
struct Flat {
    width: u64,
    height: u64,
    format: u32,
    channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
struct Deep {
    sides: [u64; 3],
    format: u32,
    channels: u32,
    flags: u32,
}

impl Cuda {
    /// An array with four floats per element.
    pub(crate) fn array(&self, width: u64, height: u64) -> Result<usize, u32> {
        let mut array = 0;
        let shape = Flat { width, height, format: FLOAT, channels: 4 };
        let code = call!(self, cuArrayCreate_v2(&raw mut array => *mut usize, &raw const shape => *const Flat));
        ok(code, array)
    }

    fn deep(&self, sides: [u64; 3], flags: u32) -> Result<usize, u32> {
        let mut array = 0;
        let shape = Deep { sides, format: FLOAT, channels: 4, flags };
        let code = call!(self, cuArray3DCreate_v2(&raw mut array => *mut usize, &raw const shape => *const Deep));
        ok(code, array)
    }

    pub(crate) fn mipmap(&self, sides: [u64; 3], levels: u32) -> Result<usize, u32> {
        let mut array = 0;
        let shape = Deep { sides, format: FLOAT, channels: 4, flags: 0 };
        let code = call!(self, cuMipmappedArrayCreate(
            &raw mut array => *mut usize, &raw const shape => *const Deep, levels => u32));
        ok(code, array)
    }

    pub(crate) fn destroy_array(&self, array: usize) -> u32 {
        call!(self, cuArrayDestroy(array => usize))
    }

    pub(crate) fn destroy_mipmap(&self, array: usize) -> u32 {
        call!(self, cuMipmappedArrayDestroy(array => usize))
    }
}

#[test]
fn arrays_are_counted_up_to_the_limit() {
    let cuda = inside!(GIB);
    // 724 MiB beside the context; 256 MiB each.
    let arrays = [0; 2].map(|_: u8| cuda.array(4096, 4096).unwrap());
    assert_eq!((cuda.counted(), cuda.used()), (512 * MIB, 512 * MIB));
    assert_eq!(cuda.array(4096, 4096), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.deep([4096, 64, 64], 0), Err(OUT_OF_MEMORY));
    for array in arrays {
        assert_eq!(cuda.destroy_array(array), 0);
    }
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    assert_ne!(cuda.destroy_array(arrays[0]), 0);
    let deep = cuda.deep([256, 256, 64], 0).unwrap();
    assert_eq!((cuda.counted(), cuda.used()), (64 * MIB, 64 * MIB));
    assert_eq!(cuda.destroy_array(deep), 0);
}

#[test]
fn mipmapped_arrays_are_counted_with_their_levels() {
    let cuda = inside!(GIB);
    let array = cuda.mipmap([4096, 4096, 0], 13).unwrap();
    assert_eq!(cuda.counted(), cuda.used());
    assert!(cuda.counted() > 256 * MIB + 85 * MIB);
    assert_eq!(cuda.mipmap([8192, 8192, 0], 1), Err(OUT_OF_MEMORY));
    assert_eq!(cuda.destroy_mipmap(array), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn an_array_that_waits_for_memory_counts_for_none() {
    let cuda = inside!(GIB);
    let array = cuda.deep([8192, 8192, 0], DEFERRED).unwrap();
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    assert_eq!(cuda.destroy_array(array), 0);
}

#[test]
fn what_is_no_description_changes_nothing() {
    let cuda = inside!(GIB);
    let nothing = std::ptr::null::<Flat>();
    let mut array = 0;
    assert_ne!(
        call!(cuda, cuArrayCreate_v2(&raw mut array => *mut usize, nothing => *const Flat)),
        0
    );
    assert_ne!(cuda.array(0, 0).map(drop), Ok(()));
    assert_eq!(cuda.array(u64::MAX, 8), Err(OUT_OF_MEMORY));
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn arrays_go_with_their_context() {
    let cuda = inside!(2 * GIB);
    let mut context = 0_usize;
    assert_eq!(call!(cuda, cuCtxCreate_v2(&raw mut context => *mut usize, 0 => u32, 0 => i32)), 0);
    cuda.array(4096, 4096).unwrap();
    cuda.mipmap([1024, 1024, 0], 4).unwrap();
    assert_eq!(cuda.counted(), cuda.used());
    assert_eq!(call!(cuda, cuCtxDestroy_v2(context => usize)), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
}

#[test]
fn memory_that_could_not_be_mapped_to_an_array_is_not_held() {
    let cuda = inside!(GIB);
    let array = cuda.deep([8192, 8192, 0], DEFERRED).unwrap();
    let handle = cuda.create(100 * MIB, FIRST_GPU).unwrap();
    // `CUarrayMapInfo`: maps the whole first level of the array.
    let mut part = [0_u64; 12];
    part[1] = array as u64;
    part[7] = 1;
    part[8] = handle;
    let code = call!(cuda, cuMemMapArrayAsync(part.as_ptr() => *const u64, 1 => u32, 0 => usize));
    assert_ne!(code, 0, "the simulated driver cannot");
    assert_eq!((cuda.counted(), cuda.used()), (100 * MIB, 100 * MIB));
    assert_eq!(cuda.release(handle), 0);
    assert_eq!((cuda.counted(), cuda.used()), (0, 0));
    assert_eq!(cuda.destroy_array(array), 0);
}
