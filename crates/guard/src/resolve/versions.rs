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
    version("cuMemGetAddressRange", 3020, "_v2"),
    version("cuDeviceTotalMem", 3020, "_v2"),
    version("cuDevicePrimaryCtxRelease", 11000, "_v2"),
    version("cuDevicePrimaryCtxReset", 11000, "_v2"),
    version("cuCtxCreate", 3020, "_v2"),
    version("cuCtxCreate", 11040, "_v3"),
    version("cuCtxCreate", 12050, "_v4"),
    version("cuCtxDestroy", 4000, "_v2"),
    version("cuCtxSynchronize", 13000, "_v2"),
    version("cuGLCtxCreate", 3020, "_v2"),
    version("cuVDPAUCtxCreate", 3020, "_v2"),
    version("cuArrayCreate", 3020, "_v2"),
    version("cuArray3DCreate", 3020, "_v2"),
    version("cuGraphInstantiate", 11000, "_v2"),
    version("cuGraphExecUpdate", 12000, "_v2"),
    version("cuGraphAddNode", 12030, "_v2"),
    version("cuGraphExecKernelNodeSetParams", 12000, "_v2"),
    version("cuTexRefSetAddress", 3020, "_v2"),
    version("cuTexRefSetAddress2D", 3020, "_v2"),
    version("cuTexRefSetAddress2D", 4010, "_v3"),
    version("cuStreamDestroy", 4000, "_v2"),
    version("cuStreamBeginCapture", 10010, "_v2"),
    version("cuMulticastBindMem", 13010, "_v2"),
    version("cuMulticastBindAddr", 13010, "_v2"),
    version("cuMemcpyHtoD", 3020, "_v2"),
    version("cuMemcpyDtoH", 3020, "_v2"),
    version("cuMemcpyDtoD", 3020, "_v2"),
    version("cuMemcpyDtoA", 3020, "_v2"),
    version("cuMemcpyAtoD", 3020, "_v2"),
    version("cuMemcpyHtoA", 3020, "_v2"),
    version("cuMemcpyAtoH", 3020, "_v2"),
    version("cuMemcpyAtoA", 3020, "_v2"),
    version("cuMemcpyHtoAAsync", 3020, "_v2"),
    version("cuMemcpyAtoHAsync", 3020, "_v2"),
    version("cuMemcpy2D", 3020, "_v2"),
    version("cuMemcpy2DUnaligned", 3020, "_v2"),
    version("cuMemcpy3D", 3020, "_v2"),
    version("cuMemcpyHtoDAsync", 3020, "_v2"),
    version("cuMemcpyDtoHAsync", 3020, "_v2"),
    version("cuMemcpyDtoDAsync", 3020, "_v2"),
    version("cuMemcpy2DAsync", 3020, "_v2"),
    version("cuMemcpy3DAsync", 3020, "_v2"),
    version("cuMemsetD8", 3020, "_v2"),
    version("cuMemsetD16", 3020, "_v2"),
    version("cuMemsetD32", 3020, "_v2"),
    version("cuMemsetD2D8", 3020, "_v2"),
    version("cuMemsetD2D16", 3020, "_v2"),
    version("cuMemsetD2D32", 3020, "_v2"),
    version("cuModuleGetGlobal", 3020, "_v2"),
    version("cuMemAllocHost", 3020, "_v2"),
    version("cuEventDestroy", 4000, "_v2"),
    version("cuMemHostRegister", 6050, "_v2"),
    version("cuStreamWaitValue32", 11070, "_v2"),
    version("cuStreamWaitValue64", 11070, "_v2"),
    version("cuStreamWriteValue32", 11070, "_v2"),
    version("cuStreamWriteValue64", 11070, "_v2"),
    version("cuStreamBatchMemOp", 11070, "_v2"),
    version("cuMemPrefetchAsync", 12020, "_v2"),
    version("cuMemAdvise", 12020, "_v2"),
    version("cuMemcpyBatchAsync", 13000, "_v2"),
    version("cuMemcpy3DBatchAsync", 13000, "_v2"),
    version("cuLaunchHostFunc", 13010, "_v2"),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use octavo_guard_abi::names;

    use super::*;
    use crate::hooks::{CUDA, Hook};

    /// Functions without a type there: they are in headers of their own.
    const WITHOUT_TYPE: [&str; 2] = ["cuGLCtxCreate", "cuVDPAUCtxCreate"];

    /// Arguments by name and CUDA version.
    fn typedefs() -> BTreeMap<&'static str, BTreeMap<i32, usize>> {
        let mut all: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
        for line in include_str!("typedefs.txt").lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            let versions = all.entry(words[0]).or_default();
            versions.insert(words[1].parse().unwrap(), words[2].parse().unwrap());
        }
        all
    }

    fn hooks() -> impl Iterator<Item = &'static Hook> {
        CUDA.iter().flat_map(|file| file.iter())
    }

    #[test]
    fn each_hook_has_as_many_arguments_as_its_version_in_cuda_s_header() {
        let typedefs = typedefs();
        let mut checked = 0;
        for hook in hooks() {
            let base = core::str::from_utf8(names::base(hook.name.as_bytes())).unwrap();
            if WITHOUT_TYPE.contains(&base) {
                continue;
            }
            let ending = hook.name.strip_prefix(base).unwrap();
            let ending = ending.trim_end_matches("_ptsz").trim_end_matches("_ptds");
            let of_ending = |it: &&Version| it.name == base && it.ending == ending;
            let since = VERSIONS.iter().find(of_ending).map(|it| it.since);
            let versions = &typedefs[base];
            let since = since.unwrap_or_else(|| {
                assert_eq!(ending, "", "{} has no line in the table", hook.name);
                *versions.keys().next().unwrap()
            });
            assert_eq!(versions.get(&since), Some(&hook.arguments), "{} {since}", hook.name);
            checked += 1;
        }
        assert!(checked > 200, "{checked}");
    }

    #[test]
    fn each_version_means_a_hook_with_its_arguments() {
        let typedefs = typedefs();
        for Version { name, since, ending } in VERSIONS {
            let of_version =
                |hook: &&Hook| hook.name.strip_prefix(name).is_some_and(|rest| rest == *ending);
            let hook = hooks().find(of_version).unwrap_or_else(|| panic!("no hook {name}{ending}"));
            if !WITHOUT_TYPE.contains(name) {
                assert_eq!(typedefs[name].get(since), Some(&hook.arguments), "{name} {since}");
            }
        }
    }
}
