//! `cuMemAlloc`, looked up in other ways.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::OnceLock;

use super::{Allocation, GpuContext, size};
use crate::driver::{CudaError, Handle, checked};

type Allocate = unsafe extern "C" fn(&mut u64, usize) -> c_int;
type Free = unsafe extern "C" fn(u64) -> c_int;

/// The library in the other namespace. A process can have few namespaces, so it is opened once.
static NAMESPACE_LIBRARY: OnceLock<usize> = OnceLock::new();

/// By `cuGetProcAddress`, like the CUDA runtime.
pub(super) fn resolved<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    let (allocate, free) =
        (context.cuda.resolve("cuMemAlloc")?, context.cuda.resolve("cuMemFree")?);
    // SAFETY: the driver returns a function of this type for the name and version.
    let allocate = unsafe { transmute::<Handle, Allocate>(allocate) };
    // SAFETY: as above.
    let free = unsafe { transmute::<Handle, Free>(free) };
    let mut pointer = 0;
    // SAFETY: its type in cuda.h.
    let code = unsafe { allocate(&mut pointer, size(bytes)) };
    checked("cuMemAlloc", code)?;
    Ok(Allocation::new(move || {
        // SAFETY: its type in cuda.h.
        let code = unsafe { free(pointer) };
        checked("cuMemFree", code)
    }))
}

/// From a driver library in a separate namespace of the dynamic linker, with its own context.
pub(super) fn namespace<'a>(
    context: &'a GpuContext<'a>,
    bytes: u64,
) -> Result<Allocation<'a>, CudaError> {
    type Init = unsafe extern "C" fn(c_uint) -> c_int;
    type Retain = unsafe extern "C" fn(&mut Handle, c_int) -> c_int;
    type SetCurrent = unsafe extern "C" fn(Handle) -> c_int;
    const CALL: &str = "dlmopen";
    let library = *NAMESPACE_LIBRARY.get_or_init(|| {
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
        // SAFETY: it is the library that the process has opened before, in a separate namespace.
        let library = unsafe { libc::dlmopen(libc::LM_ID_NEWLM, c"libcuda.so.1".as_ptr(), flags) };
        library.expose_provenance()
    });
    if library == 0 {
        return Err(CudaError::Missing(CALL));
    }
    let library: *mut c_void = std::ptr::with_exposed_provenance_mut(library);
    let find = |name: &'static std::ffi::CStr| -> Result<*mut c_void, CudaError> {
        // SAFETY: the library is open, the name ends with zero.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        if found.is_null() { Err(CudaError::Missing(CALL)) } else { Ok(found) }
    };
    // SAFETY: their types in cuda.h.
    let init = unsafe { transmute::<*mut c_void, Init>(find(c"cuInit")?) };
    // SAFETY: as above.
    let retain = unsafe { transmute::<*mut c_void, Retain>(find(c"cuDevicePrimaryCtxRetain")?) };
    // SAFETY: as above.
    let set = unsafe { transmute::<*mut c_void, SetCurrent>(find(c"cuCtxSetCurrent")?) };
    // SAFETY: as above.
    let allocate = unsafe { transmute::<*mut c_void, Allocate>(find(c"cuMemAlloc_v2")?) };
    // SAFETY: as above.
    let free = unsafe { transmute::<*mut c_void, Free>(find(c"cuMemFree_v2")?) };
    let (mut second_context, mut pointer) = (null_mut(), 0);
    // SAFETY: its type in cuda.h.
    checked("cuInit", unsafe { init(0) })?;
    // SAFETY: its type in cuda.h.
    checked("cuDevicePrimaryCtxRetain", unsafe { retain(&mut second_context, context.device) })?;
    // SAFETY: its type in cuda.h.
    checked("cuCtxSetCurrent", unsafe { set(second_context) })?;
    // SAFETY: its type in cuda.h.
    checked("cuMemAlloc", unsafe { allocate(&mut pointer, size(bytes)) })?;
    Ok(Allocation::new(move || {
        // SAFETY: its type in cuda.h.
        checked("cuMemFree", unsafe { free(pointer) })
    }))
}
