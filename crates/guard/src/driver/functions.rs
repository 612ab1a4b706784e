//! Functions of the driver that the guard calls and does not stand in for.

use core::ffi::c_void;

use super::{CUDA, FunctionAddress};
use crate::cuda::{AllocationNode, ArrayMemoryRequirements, Device, Opaque, Pointer, Status};
use crate::platform::ffi::Out;

/// Declares functions: a `call::name` each, and the table by which they are found.
macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?);)*) => {
        /// Names and slots, for [`super::Driver::attach`].
        pub(super) const TABLE: &[(&str, &FunctionAddress)] = &[$((stringify!($name), &slots::$name)),*];

        #[allow(non_upper_case_globals, reason = "names of the driver's interface")]
        mod slots {
            use super::FunctionAddress;
            $(pub(super) static $name: FunctionAddress = FunctionAddress::new();)*
        }

        /// The functions. `NOT_FOUND` where the driver has none of that name.
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
    /// The context of this thread; zero: none.
    fn cuCtxGetCurrent(context: Out<Opaque>);
    /// The device of this thread's context.
    fn cuCtxGetDevice(device: Out<Device>);
    /// A device's UUID; that of the instance on a device that is divided.
    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: Device);
    /// A device's UUID, on drivers before 11.4.
    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: Device);
    /// Whether a device's primary context is there.
    fn cuDevicePrimaryCtxGetState(device: Device, flags: Out<u32>, active: Out<i32>);
    /// Whether a stream's work goes into a graph; 0: it does not.
    fn cuStreamIsCapturing(stream: Opaque, answer: Out<u32>);
    /// As above; the default stream is the thread's own.
    fn cuStreamIsCapturing_ptsz(stream: Opaque, answer: Out<u32>);
    /// A stream's device, since CUDA 12.8.
    fn cuStreamGetDevice(stream: Opaque, device: Out<Device>);
    /// Waits for a stream's work.
    fn cuStreamSynchronize(stream: Opaque);
    /// As above; the default stream is the thread's own.
    fn cuStreamSynchronize_ptsz(stream: Opaque);
    /// Has a function of the host called when a stream comes so far, since CUDA 10.0. It must not call the driver.
    fn cuLaunchHostFunc(stream: Opaque, function: extern "C" fn(*mut c_void), argument: Opaque);
    /// As above; the default stream is the thread's own.
    fn cuLaunchHostFunc_ptsz(stream: Opaque, function: extern "C" fn(*mut c_void), argument: Opaque);
    /// A fact about a pool; all that are asked for here are numbers of 64 bits.
    fn cuMemPoolGetAttribute(pool: Opaque, attribute: u32, value: Out<u64>);
    /// A fact about the memory of a device's graphs.
    fn cuDeviceGetGraphMemAttribute(device: Device, attribute: u32, value: Out<u64>);
    /// The nodes of a graph: their number where `nodes` is 0, else as many as `count` says.
    fn cuGraphGetNodes(graph: Opaque, nodes: Opaque, count: Out<usize>);
    /// What a node is.
    fn cuGraphNodeGetType(node: Opaque, kind: Out<u32>);
    /// What a node allocates.
    fn cuGraphMemAllocNodeGetParams(node: Opaque, params: Out<AllocationNode>);
    /// The graph within a node.
    fn cuGraphChildGraphNodeGetGraph(node: Opaque, graph: Out<Opaque>);
    /// What memory an array needs.
    fn cuArrayGetMemoryRequirements(answer: Out<ArrayMemoryRequirements>, array: Opaque, device: Device);
    /// What memory a mipmapped array needs.
    fn cuMipmappedArrayGetMemoryRequirements(answer: Out<ArrayMemoryRequirements>, array: Opaque, device: Device);
    /// A limit of this thread's context.
    fn cuCtxGetLimit(value: Out<usize>, limit: u32);
    /// A fact about a device.
    fn cuDeviceGetAttribute(value: Out<i32>, attribute: u32, device: Device);
    /// A fact about a pointer.
    fn cuPointerGetAttribute(value: Opaque, attribute: u32, pointer: Pointer);
}
