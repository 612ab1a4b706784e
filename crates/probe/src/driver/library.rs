//! The open library and its functions.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

use super::{
    AccessDescription, AllocationProperties, ArrayDescription, Code, CudaError, FabricHandle,
    Handle, MemAllocNode, Pointer, PoolProperties,
};

/// An open driver library.
#[derive(Debug)]
pub(crate) struct Cuda {
    library: Library,
}

/// Launches a kernel: function, grid, block, shared memory, stream, arguments, options.
pub(crate) type Launch = unsafe extern "C" fn(
    Handle,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    c_uint,
    Handle,
    *mut *mut c_void,
    *mut *mut c_void,
) -> c_int;

/// `cuMemAlloc_v2`.
pub(crate) type Allocate = unsafe extern "C" fn(&mut Pointer, usize) -> c_int;
/// `cuMemFree_v2`.
pub(crate) type Free = unsafe extern "C" fn(Pointer) -> c_int;

impl Cuda {
    /// Opens the library that the dynamic linker finds under a name or path.
    pub(crate) fn open(name: &str) -> Result<Self, CudaError> {
        // SAFETY: it is the driver's library or a replacement of it; every program of the driver
        // runs its initialisers.
        let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        library.map(|library| Self { library }).map_err(CudaError::NoLibrary)
    }

    /// Loads a further library of the driver for the rest of the process. The driver finds it by its name.
    pub(crate) fn keep_loaded(library: &Path) -> Result<(), CudaError> {
        // SAFETY: as above.
        let library = unsafe { Library::open(Some(library), RTLD_NOW | RTLD_LOCAL) };
        library.map(std::mem::forget).map_err(CudaError::NoLibrary)
    }

    /// A function of the library.
    ///
    /// # Safety
    /// `T` must be the function's type.
    pub(crate) unsafe fn find<T>(&self, name: &'static str) -> Result<Symbol<T>, CudaError> {
        let text = CString::new(name).map_err(|_| CudaError::Missing(name))?;
        // SAFETY: by contract of this function.
        let symbol = unsafe { self.library.get::<T>(text.as_bytes_with_nul()) };
        symbol.map_err(|_| CudaError::Missing(name))
    }

    /// The launch function, for many calls.
    pub(crate) fn launcher(&self) -> Result<Launch, CudaError> {
        // SAFETY: its type in cuda.h.
        unsafe { self.find::<Launch>("cuLaunchKernel") }.map(|symbol| *symbol)
    }

    /// The functions to allocate and free, for many calls.
    pub(crate) fn allocator(&self) -> Result<(Allocate, Free), CudaError> {
        // SAFETY: its type in cuda.h.
        let allocate = unsafe { self.find::<Allocate>("cuMemAlloc_v2") }?;
        // SAFETY: its type in cuda.h.
        let free = unsafe { self.find::<Free>("cuMemFree_v2") }?;
        Ok((*allocate, *free))
    }

    /// The result of `cuGetProcAddress_v2` for a name, as a program of this CUDA version would get
    /// it.
    pub(crate) fn resolve(&self, name: &'static str) -> Result<Handle, CudaError> {
        type Resolve =
            unsafe extern "C" fn(*const c_char, &mut Handle, c_int, u64, &mut c_int) -> c_int;
        const VERSION: c_int = 13_000;
        let text = CString::new(name).map_err(|_| CudaError::Missing(name))?;
        let (mut found, mut status) = (std::ptr::null_mut(), 0);
        // SAFETY: its type in cuda.h.
        let resolve = unsafe { self.find::<Resolve>("cuGetProcAddress_v2") }?;
        // SAFETY: the name lives through the call, and the results are local variables.
        let code = unsafe { resolve(text.as_ptr(), &mut found, VERSION, 0, &mut status) };
        checked("cuGetProcAddress_v2", code)?;
        if found.is_null() { Err(CudaError::Missing(name)) } else { Ok(found) }
    }

    /// A GPU's name.
    pub(crate) fn device_name(&self, device: c_int) -> Result<String, CudaError> {
        let mut name: [c_char; 96] = [0; 96];
        // The last byte stays zero.
        self.device_get_name(&mut name, 95, device)?;
        // SAFETY: the last byte is zero, so the text ends within the array.
        let text = unsafe { CStr::from_ptr(name.as_ptr()) };
        Ok(text.to_string_lossy().into_owned())
    }
}

/// Turns a result code into a `Result`.
pub(crate) fn checked(call: &'static str, code: c_int) -> Result<(), CudaError> {
    let code = Code(code);
    if code == Code::SUCCESS { Ok(()) } else { Err(CudaError::Failed { call, code }) }
}

/// Declares functions of the library as methods, which look the function up on each call.
macro_rules! calls {
    ($($method:ident = $symbol:literal ($($argument:ident: $type:ty),*);)*) => {
        impl Cuda {
            $(
                pub(crate) fn $method(&self, $($argument: $type),*) -> Result<(), CudaError> {
                    // SAFETY: its type in cuda.h; references are pointers that are never null.
                    let call = unsafe {
                        self.find::<unsafe extern "C" fn($($type),*) -> c_int>($symbol)
                    }?;
                    // SAFETY: all pointees live through the call. Handles come from the driver,
                    // which checks them.
                    let code = unsafe { call($($argument),*) };
                    checked($symbol, code)
                }
            )*
        }
    };
}

calls! {
    init = "cuInit"(flags: c_uint);
    driver_version = "cuDriverGetVersion"(version: &mut c_int);
    device_count = "cuDeviceGetCount"(count: &mut c_int);
    device_get = "cuDeviceGet"(device: &mut c_int, number: c_int);
    device_get_name = "cuDeviceGetName"(name: &mut [c_char; 96], length: c_int, device: c_int);
    device_uuid = "cuDeviceGetUuid_v2"(uuid: &mut [u8; 16], device: c_int);
    device_attribute = "cuDeviceGetAttribute"(value: &mut c_int, attribute: c_uint, device: c_int);
    can_access_peer = "cuDeviceCanAccessPeer"(can: &mut c_int, device: c_int, peer: c_int);
    device_total = "cuDeviceTotalMem_v2"(bytes: &mut usize, device: c_int);
    primary_retain = "cuDevicePrimaryCtxRetain"(context: &mut Handle, device: c_int);
    primary_release = "cuDevicePrimaryCtxRelease_v2"(device: c_int);
    context_set = "cuCtxSetCurrent"(context: Handle);
    context_synchronize = "cuCtxSynchronize"();
    enable_peer_access = "cuCtxEnablePeerAccess"(peer: Handle, flags: c_uint);
    limit_set = "cuCtxSetLimit"(limit: c_uint, value: usize);
    limit_get = "cuCtxGetLimit"(value: &mut usize, limit: c_uint);
    memory_info = "cuMemGetInfo_v2"(free: &mut usize, total: &mut usize);
    allocate = "cuMemAlloc_v2"(pointer: &mut Pointer, bytes: usize);
    allocate_pitch = "cuMemAllocPitch_v2"(
        pointer: &mut Pointer, pitch: &mut usize, width: usize, height: usize, element: c_uint
    );
    allocate_managed = "cuMemAllocManaged"(pointer: &mut Pointer, bytes: usize, flags: c_uint);
    allocate_async = "cuMemAllocAsync"(pointer: &mut Pointer, bytes: usize, stream: Handle);
    allocate_from_pool = "cuMemAllocFromPoolAsync"(
        pointer: &mut Pointer, bytes: usize, pool: Handle, stream: Handle
    );
    free = "cuMemFree_v2"(pointer: Pointer);
    free_async = "cuMemFreeAsync"(pointer: Pointer, stream: Handle);
    pool_create = "cuMemPoolCreate"(pool: &mut Handle, properties: &PoolProperties);
    pool_destroy = "cuMemPoolDestroy"(pool: Handle);
    pool_trim = "cuMemPoolTrimTo"(pool: Handle, keep: usize);
    pool_default = "cuDeviceGetDefaultMemPool"(pool: &mut Handle, device: c_int);
    create = "cuMemCreate"(
        handle: &mut u64, bytes: usize, properties: &AllocationProperties, flags: u64
    );
    release = "cuMemRelease"(handle: u64);
    export = "cuMemExportToShareableHandle"(
        shareable: &mut FabricHandle, handle: u64, kind: c_uint, flags: u64
    );
    import = "cuMemImportFromShareableHandle"(
        handle: &mut u64, shareable: &FabricHandle, kind: c_uint
    );
    copy_to_device = "cuMemcpyHtoD_v2"(to: Pointer, from: *const u8, bytes: usize);
    copy_to_host = "cuMemcpyDtoH_v2"(to: *mut u8, from: Pointer, bytes: usize);
    copy_to_peer = "cuMemcpyPeerAsync"(
        to: Pointer, to_context: Handle, from: Pointer, from_context: Handle, bytes: usize, stream: Handle
    );
    reserve = "cuMemAddressReserve"(
        pointer: &mut Pointer, bytes: usize, alignment: usize, wanted: Pointer, flags: u64
    );
    unreserve = "cuMemAddressFree"(pointer: Pointer, bytes: usize);
    map = "cuMemMap"(pointer: Pointer, bytes: usize, offset: usize, handle: u64, flags: u64);
    unmap = "cuMemUnmap"(pointer: Pointer, bytes: usize);
    set_access = "cuMemSetAccess"(
        pointer: Pointer, bytes: usize, access: &AccessDescription, count: usize
    );
    array_create = "cuArray3DCreate_v2"(array: &mut Handle, description: &ArrayDescription);
    array_destroy = "cuArrayDestroy"(array: Handle);
    mipmapped_create = "cuMipmappedArrayCreate"(
        array: &mut Handle, description: &ArrayDescription, levels: c_uint
    );
    mipmapped_destroy = "cuMipmappedArrayDestroy"(array: Handle);
    graph_create = "cuGraphCreate"(graph: &mut Handle, flags: c_uint);
    graph_destroy = "cuGraphDestroy"(graph: Handle);
    graph_add_allocation = "cuGraphAddMemAllocNode"(
        node: &mut Handle, graph: Handle, after: *const Handle, count: usize, what: &mut MemAllocNode
    );
    graph_instantiate = "cuGraphInstantiateWithFlags"(exec: &mut Handle, graph: Handle, flags: u64);
    graph_launch = "cuGraphLaunch"(exec: Handle, stream: Handle);
    graph_exec_destroy = "cuGraphExecDestroy"(exec: Handle);
    graph_trim = "cuDeviceGraphMemTrim"(device: c_int);
    module_load = "cuModuleLoadData"(module: &mut Handle, image: *const c_void);
    module_unload = "cuModuleUnload"(module: Handle);
    module_function = "cuModuleGetFunction"(function: &mut Handle, module: Handle, name: *const c_char);
    stream_synchronize = "cuStreamSynchronize"(stream: Handle);
    stream_query = "cuStreamQuery"(stream: Handle);
}
