//! Classifies names of the driver: does a function allocate or retain memory, or launch work?
//!
//! A driver newer than the guard has functions unknown to the guard. Most of them are harmless.
//! Functions that allocate memory or launch work would bypass the guard. The agent asks which
//! exports of the driver need a stub ([`is_suspicious`]); the guard asks the same for names that a
//! program looks up.

/// Names of CUDA 13 (up to 13.5) that look as if they allocated GPU memory or launched work, but do
/// not. Without the suffixes that [`base`] strips.
pub const HARMLESS: &[&str] = &[
    // Queries about an allocation.
    "cuGraphMemAllocNodeGetParams",
    "cuMemGetAllocationGranularity",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuTensorMapSetAllocationClass",
    // Host memory, which the pod's own limit counts.
    "cuMemAllocHost",
    "cuMemHostAlloc",
    // A host function in a stream.
    "cuLaunchHostFunc",
];

/// Names of CUDA 13.5 that allocate GPU memory, retain it beyond its release or launch work,
/// without suffixes. The guard must hook all of them, in every version that it knows.
pub const KNOWN: &[&str] = &[
    "cuArray3DCreate",
    "cuArrayCreate",
    "cuCtxCreate",
    "cuGLCtxCreate",
    "cuGraphAddMemAllocNode",
    "cuGraphLaunch",
    "cuGreenCtxCreate",
    "cuLaunch",
    "cuLaunchCooperativeKernel",
    "cuLaunchCooperativeKernelMultiDevice",
    "cuLaunchGrid",
    "cuLaunchGridAsync",
    "cuLaunchKernel",
    "cuLaunchKernelEx",
    "cuMemAlloc",
    "cuMemAllocAsync",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocManaged",
    "cuMemAllocPitch",
    "cuMemCreate",
    "cuMemPoolCreate",
    "cuMemRetainAllocationHandle",
    "cuMipmappedArrayCreate",
    "cuMulticastBindAddr",
    "cuMulticastBindMem",
    "cuVDPAUCtxCreate",
];

/// Words in the names of functions that allocate memory or launch work, in any position and case.
const SUSPICIOUS_WORDS: [&[u8]; 2] = [b"alloc", b"launch"];

/// Objects that take memory when they are created.
const CREATED_OBJECTS: [&[u8]; 6] = [b"Mem", b"Array", b"Array3D", b"Pool", b"Ctx", b"Buffer"];

/// Functions that retain memory after its owner released it. An unhooked one would keep memory
/// uncounted. Logical endpoints are new in CUDA 13.3; the guard does not hook them.
const RETAINING_PREFIXES: [&[u8]; 2] = [b"cuMulticastBind", b"cuLogicalEndpointBind"];

/// Whether a name of the driver looks as if it allocated or retained GPU memory or launched work.
/// The result is also true for hooked names; callers ask about the others. It is never true for
/// NVML, which does neither.
pub fn is_suspicious(name: &[u8]) -> bool {
    // The next letter is a capital: `cuda...` and `cudbg...` are not part of the driver API.
    let is_driver_name = name.starts_with(b"cu") && name.get(2).is_some_and(u8::is_ascii_uppercase);
    if !is_driver_name {
        return false;
    }
    let base = base(name);
    let looks_suspicious = RETAINING_PREFIXES.iter().any(|prefix| base.starts_with(prefix))
        || SUSPICIOUS_WORDS.iter().any(|word| contains_ignoring_case(base, word))
        || base
            .strip_suffix(b"Create")
            .is_some_and(|kind| CREATED_OBJECTS.iter().any(|created| kind.ends_with(created)));
    looks_suspicious && !HARMLESS.iter().any(|harmless| harmless.as_bytes() == base)
}

/// A name without its suffixes for version (`_v2`) and default stream (`_ptsz`, `_ptds`).
pub fn base(name: &[u8]) -> &[u8] {
    let name = name.strip_suffix(b"_ptsz").or(name.strip_suffix(b"_ptds")).unwrap_or(name);
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    match name[..name.len() - digits].strip_suffix(b"_v") {
        Some(base) if digits > 0 => base,
        _ => name,
    }
}

/// Whether a name contains a lower-case word, in any case.
fn contains_ignoring_case(name: &[u8], word: &[u8]) -> bool {
    name.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests;
