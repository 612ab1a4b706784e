//! Driver functions that the guard calls itself, without a hook.

use core::ffi::c_void;

use super::{CUDA, FunctionAddress};
use crate::cuda::{AllocationNode, ArrayMemoryRequirements, Device, Opaque, Pointer, Status};
use crate::platform::ffi::Out;

/// Declares functions: a `call::name` for each, and the table for their lookup.
macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        /// Names and slots, for [`super::Driver::attach`].
        pub(super) const TABLE: &[(&str, &FunctionAddress)] = &[$((stringify!($name), &slots::$name)),*];

        #[allow(non_upper_case_globals, reason = "names of the driver's interface")]
        mod slots {
            use super::FunctionAddress;
            $(pub(super) static $name: FunctionAddress = FunctionAddress::new();)*
        }

        /// The functions. They return `NOT_FOUND` if the driver lacks them.
        #[allow(non_snake_case, reason = "names of the driver's interface")]
        pub(crate) mod call {
            #[allow(clippy::wildcard_imports, reason = "the types of the declarations above")]
            use super::*;
            $(
                $(#[$doc])*
                #[allow(
                    clippy::undocumented_unsafe_blocks,
                    reason = "documented below, where clippy does not look within a macro"
                )]
                pub(crate) fn $name($($argument: $type),*) -> Status {
                    let address = slots::$name.resolved(&CUDA);
                    if address == 0 {
                        return Status::NOT_FOUND;
                    }
                    // JUSTIFICATION: the driver is C, found at run time.
                    // SAFETY: the address is that of the driver's function of this name, whose signature
                    // in `cuda.h` is the one above.
                    let function: extern "C" fn($($type),*) -> Status =
                        unsafe { core::mem::transmute(address) };
                    function($($argument),*)
                }
            )*
        }
    };
}

functions! {
    /// The context of this thread; 0 if there is none.
    fn cuCtxGetCurrent(context: Out<Opaque>);
    /// The device of this thread's context.
    fn cuCtxGetDevice(device: Out<Device>);
    /// UUID of a device; on a MIG device, that of the instance.
    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: Device);
    /// UUID of a device, on drivers before 11.4.
    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: Device);
    /// Whether the primary context of a device is active.
    fn cuDevicePrimaryCtxGetState(device: Device, flags: Out<u32>, active: Out<i32>);
    /// Whether a stream is being captured into a graph; 0 if not.
    fn cuStreamIsCapturing(stream: Opaque, answer: Out<u32>);
    /// As above, with the per-thread default stream.
    fn cuStreamIsCapturing_ptsz(stream: Opaque, answer: Out<u32>);
    /// Context of a stream, since CUDA 9.2.
    fn cuStreamGetCtx(stream: Opaque, context: Out<Opaque>);
    /// Device of a stream, since CUDA 12.8.
    fn cuStreamGetDevice(stream: Opaque, device: Out<Device>);
    /// Waits for the work of a stream.
    fn cuStreamSynchronize(stream: Opaque);
    /// As above, with the per-thread default stream.
    fn cuStreamSynchronize_ptsz(stream: Opaque);
    /// Calls a host function once the stream reaches it, since CUDA 10.0. It must not call the
    /// driver.
    fn cuLaunchHostFunc(stream: Opaque, function: extern "C" fn(*mut c_void), argument: Opaque);
    /// As above, with the per-thread default stream.
    fn cuLaunchHostFunc_ptsz(stream: Opaque, function: extern "C" fn(*mut c_void), argument: Opaque);
    /// Stores a number when a stream reaches it, since CUDA 11.7.
    fn cuStreamWriteValue64_v2(stream: Opaque, address: Pointer, value: u64, flags: u32);
    /// As above, with the per-thread default stream.
    fn cuStreamWriteValue64_v2_ptsz(stream: Opaque, address: Pointer, value: u64, flags: u32);
    /// Exchanges what this thread's calls may do to captures of others.
    fn cuThreadExchangeStreamCaptureMode(mode: Out<u32>);
    /// Registers host memory, so that the GPU can use it.
    fn cuMemHostRegister_v2(start: Opaque, bytes: usize, flags: u32);
    /// The GPU's address of registered host memory.
    fn cuMemHostGetDevicePointer_v2(address: Out<Pointer>, start: Opaque, flags: u32);
    /// Attribute of a pool. All attributes used here are 64-bit numbers.
    fn cuMemPoolGetAttribute(pool: Opaque, attribute: u32, value: Out<u64>);
    /// Attribute of the graph memory of a device.
    fn cuDeviceGetGraphMemAttribute(device: Device, attribute: u32, value: Out<u64>);
    /// Nodes of a graph: their number if `nodes` is 0, else up to `count` of them.
    fn cuGraphGetNodes(graph: Opaque, nodes: Opaque, count: Out<usize>);
    /// Type of a node.
    fn cuGraphNodeGetType(node: Opaque, kind: Out<u32>);
    /// Parameters of an allocation node.
    fn cuGraphMemAllocNodeGetParams(node: Opaque, params: Out<AllocationNode>);
    /// The graph within a child graph node.
    fn cuGraphChildGraphNodeGetGraph(node: Opaque, graph: Out<Opaque>);
    /// Memory requirements of an array.
    fn cuArrayGetMemoryRequirements(answer: Out<ArrayMemoryRequirements>, array: Opaque, device: Device);
    /// Memory requirements of a mipmapped array.
    fn cuMipmappedArrayGetMemoryRequirements(answer: Out<ArrayMemoryRequirements>, array: Opaque, device: Device);
    /// Limit of this thread's context.
    fn cuCtxGetLimit(value: Out<usize>, limit: u32);
    /// Attribute of a device.
    fn cuDeviceGetAttribute(value: Out<i32>, attribute: u32, device: Device);
    /// Attribute of a pointer.
    fn cuPointerGetAttribute(value: Opaque, attribute: u32, pointer: Pointer);
    /// Sets an attribute of a pointer.
    fn cuPointerSetAttribute(value: Opaque, attribute: u32, pointer: Pointer);
    /// Number of GPUs.
    fn cuDeviceGetCount(count: Out<i32>);
    /// Makes a context current in this thread.
    fn cuCtxPushCurrent_v2(context: Opaque);
    /// Makes the context before it current again.
    fn cuCtxPopCurrent_v2(context: Out<Opaque>);
    /// Waits for all work of the current context.
    fn cuCtxSynchronize();
    /// Records an event after all work of a context, since CUDA 12.5.
    fn cuCtxRecordEvent(context: Opaque, event: Opaque);
    /// Creates an event in the current context.
    fn cuEventCreate(event: Out<Opaque>, flags: u32);
    /// Asks whether what an event was recorded after has ended.
    fn cuEventQuery(event: Opaque);
    /// Destroys an event.
    fn cuEventDestroy_v2(event: Opaque);
    /// Reserves addresses.
    fn cuMemAddressReserve(address: Out<Pointer>, bytes: usize, alignment: usize, wanted: Pointer, flags: u64);
    /// Gives addresses back.
    fn cuMemAddressFree(address: Pointer, bytes: usize);
    /// Creates physical memory.
    fn cuMemCreate(handle: Out<u64>, bytes: usize, prop: Opaque, flags: u64);
    /// Releases a handle of physical memory.
    fn cuMemRelease(handle: u64);
    /// Maps physical memory to addresses.
    fn cuMemMap(address: Pointer, bytes: usize, offset: usize, handle: u64, flags: u64);
    /// Removes a mapping.
    fn cuMemUnmap(address: Pointer, bytes: usize);
    /// Lets GPUs use mapped memory.
    fn cuMemSetAccess(address: Pointer, bytes: usize, access: Opaque, count: usize);
    /// Copies from the GPU to the host.
    fn cuMemcpyDtoH_v2(to: Opaque, from: Pointer, bytes: usize);
    /// Copies from the host to the GPU.
    fn cuMemcpyHtoD_v2(to: Pointer, from: Opaque, bytes: usize);
}
