//! CUDA versions from which on a name means a newer version of a function (`cudaTypedefs.h`).

/// A version of a function.
pub(super) struct Version {
    /// The name that programs look up.
    pub(super) name: &'static str,
    /// First CUDA version for which it applies, in the format of `cuDriverGetVersion`.
    pub(super) since: i32,
    /// Suffix of the export.
    pub(super) ending: &'static str,
}

const fn version(name: &'static str, since: i32, ending: &'static str) -> Version {
    Version { name, since, ending }
}

/// Newest CUDA version that the table below covers. The meaning of a name in newer versions is
/// unknown.
pub(super) const NEWEST_CUDA: i32 = 13050;

/// Versions of hooked functions beyond the first, per name in ascending order.
pub(super) const VERSIONS: &[Version] = &[
    version("cuGetProcAddress", 12000, "_v2"),
    version("cuMemAlloc", 3020, "_v2"),
    version("cuMemAllocPitch", 3020, "_v2"),
    version("cuMemFree", 3020, "_v2"),
    version("cuMemGetInfo", 3020, "_v2"),
    version("cuDeviceTotalMem", 3020, "_v2"),
    version("cuDevicePrimaryCtxRelease", 11000, "_v2"),
    version("cuDevicePrimaryCtxReset", 11000, "_v2"),
    version("cuCtxCreate", 3020, "_v2"),
    version("cuCtxCreate", 11040, "_v3"),
    version("cuCtxCreate", 12050, "_v4"),
    version("cuCtxDestroy", 4000, "_v2"),
    version("cuGLCtxCreate", 3020, "_v2"),
    version("cuVDPAUCtxCreate", 3020, "_v2"),
    version("cuArrayCreate", 3020, "_v2"),
    version("cuArray3DCreate", 3020, "_v2"),
    version("cuIpcOpenMemHandle", 11000, "_v2"),
    version("cuGraphInstantiate", 11000, "_v2"),
    version("cuGraphExecUpdate", 12000, "_v2"),
    version("cuMulticastBindMem", 13010, "_v2"),
    version("cuMulticastBindAddr", 13010, "_v2"),
];
