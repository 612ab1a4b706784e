//! Calls that only wait while the process's memory is swapped out, and go on in the driver unchanged. They touch the GPU's memory, or
//! add to what a stream does; the driver may refuse them, or not return, while the memory is away.
//!
//! No argument is read. Each is a number or a pointer, so it is passed on as a word, whatever its type in C.
//!
//! Calls that only write addresses down are not here: parameters of kernel nodes that are added, tensor maps, and nodes whose memory
//! or events are not plain memory (child graphs, frees, host functions, events, semaphores). Surfaces are of arrays, which stay on the GPU.

use crate::cuda::{Opaque, Status};
use crate::leases::wait_while_suspended;

/// Declares hooks by name and arguments.
macro_rules! gated {
    ($($name:ident($($argument:ident),*);)*) => {
        hooks! {
            CUDA, Status;
            $(
                #[doc = concat!("Passes `", stringify!($name), "` on.")]
                fn $name($($argument: Opaque),*) -> Status {
                    wait_while_suspended();
                    real::$name($($argument),*)
                }
            )*
        }
    };
}

gated! {
    // Work of streams.
    cuStreamWaitEvent(stream, event, flags);
    cuStreamWaitEvent_ptsz(stream, event, flags);
    cuStreamAddCallback(stream, callback, data, flags);
    cuStreamAddCallback_ptsz(stream, callback, data, flags);
    cuLaunchHostFunc(stream, function, data);
    cuLaunchHostFunc_ptsz(stream, function, data);
    cuLaunchHostFunc_v2(stream, function, data, sync_mode);
    cuLaunchHostFunc_v2_ptsz(stream, function, data, sync_mode);
    cuStreamAttachMemAsync(stream, address, length, flags);
    cuStreamAttachMemAsync_ptsz(stream, address, length, flags);
    cuStreamWaitValue32(stream, address, value, flags);
    cuStreamWaitValue32_ptsz(stream, address, value, flags);
    cuStreamWaitValue32_v2(stream, address, value, flags);
    cuStreamWaitValue32_v2_ptsz(stream, address, value, flags);
    cuStreamWaitValue64(stream, address, value, flags);
    cuStreamWaitValue64_ptsz(stream, address, value, flags);
    cuStreamWaitValue64_v2(stream, address, value, flags);
    cuStreamWaitValue64_v2_ptsz(stream, address, value, flags);
    cuStreamWriteValue32(stream, address, value, flags);
    cuStreamWriteValue32_ptsz(stream, address, value, flags);
    cuStreamWriteValue32_v2(stream, address, value, flags);
    cuStreamWriteValue32_v2_ptsz(stream, address, value, flags);
    cuStreamWriteValue64(stream, address, value, flags);
    cuStreamWriteValue64_ptsz(stream, address, value, flags);
    cuStreamWriteValue64_v2(stream, address, value, flags);
    cuStreamWriteValue64_v2_ptsz(stream, address, value, flags);
    cuStreamBatchMemOp(stream, count, list, flags);
    cuStreamBatchMemOp_ptsz(stream, count, list, flags);
    cuStreamBatchMemOp_v2(stream, count, list, flags);
    cuStreamBatchMemOp_v2_ptsz(stream, count, list, flags);
    cuSignalExternalSemaphoresAsync(semaphores, parameters, count, stream);
    cuSignalExternalSemaphoresAsync_ptsz(semaphores, parameters, count, stream);
    cuWaitExternalSemaphoresAsync(semaphores, parameters, count, stream);
    cuWaitExternalSemaphoresAsync_ptsz(semaphores, parameters, count, stream);
    cuGraphicsMapResources(count, resources, stream);
    cuGraphicsMapResources_ptsz(count, resources, stream);
    cuGraphicsUnmapResources(count, resources, stream);
    cuGraphicsUnmapResources_ptsz(count, resources, stream);

    // Managed memory.
    cuMemPrefetchAsync(address, count, to, stream);
    cuMemPrefetchAsync_ptsz(address, count, to, stream);
    cuMemPrefetchAsync_v2(address, count, location, flags, stream);
    cuMemPrefetchAsync_v2_ptsz(address, count, location, flags, stream);
    cuMemPrefetchBatchAsync(addresses, sizes, count, locations, indices, location_count, flags, stream);
    cuMemPrefetchBatchAsync_ptsz(addresses, sizes, count, locations, indices, location_count, flags, stream);
    cuMemDiscardBatchAsync(addresses, sizes, count, flags, stream);
    cuMemDiscardBatchAsync_ptsz(addresses, sizes, count, flags, stream);
    cuMemDiscardAndPrefetchBatchAsync(addresses, sizes, count, locations, indices, location_count, flags, stream);
    cuMemDiscardAndPrefetchBatchAsync_ptsz(addresses, sizes, count, locations, indices, location_count, flags, stream);
    cuMemAdvise(address, count, advice, device);
    cuMemAdvise_v2(address, count, advice, location);

    // Streams and events.
    cuStreamCreate(stream_out, flags);
    cuStreamCreateWithPriority(stream_out, flags, priority);
    cuGreenCtxStreamCreate(stream_out, context, flags, priority);
    cuEventCreate(event_out, flags);
    cuEventDestroy(event);
    cuEventDestroy_v2(event);
    cuEventQuery(event);
    cuEventSynchronize(event);
    cuCtxRecordEvent(context, event);
    cuCtxWaitEvent(context, event);
    cuGreenCtxRecordEvent(context, event);
    cuGreenCtxWaitEvent(context, event);

    // Code and its variables.
    cuModuleLoad(module, file);
    cuModuleLoadData(module, image);
    cuModuleLoadDataEx(module, image, option_count, options, values);
    cuModuleLoadFatBinary(module, image);
    cuModuleUnload(module);
    cuModuleGetFunction(function, module, name);
    cuModuleGetGlobal(address, bytes, module, name);
    cuModuleGetGlobal_v2(address, bytes, module, name);
    cuLibraryLoadData(library, code, options, values, option_count, own_options, own_values, own_count);
    cuLibraryLoadFromFile(library, file, options, values, option_count, own_options, own_values, own_count);
    cuLibraryUnload(library);
    cuLibraryGetModule(module_out, library);
    cuLibraryGetGlobal(address, bytes, library, name);
    cuLibraryGetManaged(address, bytes, library, name);
    cuKernelGetFunction(function_out, kernel);
    cuFuncLoad(function);

    // Nodes of graphs, and textures, by the addresses of memory: the driver looks them up.
    cuGraphAddMemcpyNode(node_out, graph, after, count, copy, context);
    cuGraphAddMemsetNode(node_out, graph, after, count, memset, context);
    cuGraphAddBatchMemOpNode(node_out, graph, after, count, list);
    cuGraphAddNode(node_out, graph, after, count, parameters);
    cuGraphAddNode_v2(node_out, graph, after, edges, count, parameters);
    cuGraphMemcpyNodeSetParams(node, copy);
    cuGraphMemsetNodeSetParams(node, memset);
    cuGraphBatchMemOpNodeSetParams(node, list);
    cuGraphNodeSetParams(node, parameters);
    cuTexObjectCreate(texture_out, resource, texture, view);
    cuTexRefSetAddress(offset_out, texture, address, bytes);
    cuTexRefSetAddress_v2(offset_out, texture, address, bytes);
    cuTexRefSetAddress2D(texture, description, address, pitch);
    cuTexRefSetAddress2D_v2(texture, description, address, pitch);
    cuTexRefSetAddress2D_v3(texture, description, address, pitch);

    // Changes of graphs that may lie on the GPU already. Programs begin with them what they launch then.
    cuGraphExecKernelNodeSetParams(exec, node, kernel);
    cuGraphExecKernelNodeSetParams_v2(exec, node, kernel);
    cuGraphExecMemcpyNodeSetParams(exec, node, copy, context);
    cuGraphExecMemsetNodeSetParams(exec, node, memset, context);
    cuGraphExecBatchMemOpNodeSetParams(exec, node, list);
    cuGraphExecChildGraphNodeSetParams(exec, node, child);
    cuGraphExecNodeSetParams(exec, node, parameters);

    // Memory of the host that the GPU uses.
    cuMemAllocHost(place, bytes);
    cuMemAllocHost_v2(place, bytes);
    cuMemHostAlloc(place, bytes, flags);
    cuMemHostRegister(start, bytes, flags);
    cuMemHostRegister_v2(start, bytes, flags);
    cuMemHostUnregister(start);
    cuMemFreeHost(start);

    // Copies and memory sets of programs before CUDA 3.2, with addresses of 32 bits.
    cuMemcpyHtoD(to, from, bytes);
    cuMemcpyDtoH(to, from, bytes);
    cuMemcpyDtoD(to, from, bytes);
    cuMemcpyDtoA(to, to_at, from, bytes);
    cuMemcpyAtoD(to, from, from_at, bytes);
    cuMemcpyHtoA(to, to_at, from, bytes);
    cuMemcpyAtoH(to, from, from_at, bytes);
    cuMemcpyAtoA(to, to_at, from, from_at, bytes);
    cuMemcpyHtoAAsync(to, to_at, from, bytes, stream);
    cuMemcpyAtoHAsync(to, from, from_at, bytes, stream);
    cuMemcpy2D(copy);
    cuMemcpy2DUnaligned(copy);
    cuMemcpy3D(copy);
    cuMemcpyHtoDAsync(to, from, bytes, stream);
    cuMemcpyDtoHAsync(to, from, bytes, stream);
    cuMemcpyDtoDAsync(to, from, bytes, stream);
    cuMemcpy2DAsync(copy, stream);
    cuMemcpy3DAsync(copy, stream);
    cuMemsetD8(to, value, count);
    cuMemsetD16(to, value, count);
    cuMemsetD32(to, value, count);
    cuMemsetD2D8(to, pitch, value, width, height);
    cuMemsetD2D16(to, pitch, value, width, height);
    cuMemsetD2D32(to, pitch, value, width, height);
}
