//! From which version of CUDA on a name means a newer version of a function (`cudaTypedefs.h`).

/// A version of a function.
pub(super) struct Version {
    /// The name that programs ask for.
    pub(super) name: &'static str,
    /// The version of CUDA from which on it is meant, as `cuDriverGetVersion` numbers them.
    pub(super) since: i32,
    /// What the export's name has behind that.
    pub(super) ending: &'static str,
}

const fn version(name: &'static str, since: i32, ending: &'static str) -> Version {
    Version { name, since, ending }
}

/// The newest version of CUDA whose functions the table below was held against. What a name means to a newer
/// one is not version_of_name here.
pub(super) const NEWEST_CUDA: i32 = 13050;

/// The versions of hooked functions beyond the first; of a name, the older ones first.
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
