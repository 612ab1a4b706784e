//! All allocation paths.

use super::{
    AllocationPath, Kind, arrays, graphs, lookups, plain, pools, settings, virtual_memory,
};

/// All paths, in the order of their trial.
pub(crate) const ALLOCATION_PATHS: &[AllocationPath] = &[
    AllocationPath { name: "alloc", what: "cuMemAlloc", take: plain::alloc, kind: Kind::Pieces },
    AllocationPath {
        name: "pitch",
        what: "cuMemAllocPitch",
        take: plain::pitch,
        kind: Kind::Pieces,
    },
    AllocationPath {
        name: "managed",
        what: "cuMemAllocManaged",
        take: plain::managed,
        kind: Kind::HostBacked,
    },
    AllocationPath {
        name: "resolved",
        what: "cuMemAlloc from cuGetProcAddress",
        take: lookups::resolved,
        kind: Kind::Pieces,
    },
    AllocationPath {
        name: "create",
        what: "cuMemCreate",
        take: virtual_memory::create,
        kind: Kind::Pieces,
    },
    AllocationPath {
        name: "map",
        what: "cuMemCreate, cuMemMap, cuMemRelease",
        take: virtual_memory::map,
        kind: Kind::Pieces,
    },
    AllocationPath {
        name: "fabric",
        what: "cuMemCreate for a fabric handle",
        take: virtual_memory::fabric,
        kind: Kind::Fabric,
    },
    AllocationPath {
        name: "async",
        what: "cuMemAllocAsync",
        take: pools::default,
        kind: Kind::Pieces,
    },
    AllocationPath {
        name: "pool",
        what: "cuMemAllocFromPoolAsync, a pool of its own",
        take: pools::own,
        kind: Kind::Pieces,
    },
    AllocationPath {
        name: "graph",
        what: "a graph with a cuGraphAddMemAllocNode",
        take: graphs::node,
        kind: Kind::Pieces,
    },
    AllocationPath {
        name: "array",
        what: "cuArray3DCreate",
        take: arrays::array,
        kind: Kind::Pieces,
    },
    AllocationPath {
        name: "mipmap",
        what: "cuMipmappedArrayCreate",
        take: arrays::mipmap,
        kind: Kind::Pieces,
    },
    AllocationPath {
        name: "heap",
        what: "cuCtxSetLimit, heap of kernels",
        take: settings::heap,
        kind: Kind::ContextLimit,
    },
    AllocationPath {
        name: "print",
        what: "cuCtxSetLimit, buffer of printf",
        take: settings::print,
        kind: Kind::ContextLimit,
    },
    AllocationPath {
        name: "namespace",
        what: "cuMemAlloc from dlmopen",
        take: lookups::namespace,
        kind: Kind::OnRequest,
    },
];
