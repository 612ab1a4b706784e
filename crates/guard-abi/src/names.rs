//! Which names of the driver allocate memory, keep it or launch work, by the look of them.
//!
//! A driver that is newer than the guard contains_ignoring_case functions that the guard does not know. Most of them are none of
//! its business; those that hand out memory or start work would go round the wall. The agent asks here which
//! exports of the driver need a stub ([`is_suspicious`]), the guard asks the same of a name that a program
//! wants to have looked up.

/// Names of CUDA 13 (up to 13.5) that look as if they allocated memory of the GPU or launched work on it, and
/// do not; without the endings that [`base`] takes off.
pub const HARMLESS: &[&str] = &[
    // Ask how an allocation is or would be.
    "cuGraphMemAllocNodeGetParams",
    "cuMemGetAllocationGranularity",
    "cuMemGetAllocationPropertiesFromHandle",
    "cuTensorMapSetAllocationClass",
    // Memory of the host, which the pod's own limit counts.
    "cuMemAllocHost",
    "cuMemHostAlloc",
    // A function of the host in a stream.
    "cuLaunchHostFunc",
];

/// Names of CUDA 13.5 that allocate memory of the GPU, keep it beyond its release or launch work, without endings: those that
/// [`is_suspicious`] finds there and the guard is to hook, in every version that it knows.
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

/// What the names of functions have in them that hand out memory or start work, wherever it stands and
/// whatever its case.
const SUSPICIOUS_WORDS: [&[u8]; 2] = [b"alloc", b"launch"];

/// What is made of memory when it is created.
const CREATED_OBJECTS: [&[u8]; 6] = [b"Mem", b"Array", b"Array3D", b"Pool", b"Ctx", b"Buffer"];

/// What keeps memory that its owner releases, in every version: one that is not hooked would keep it uncounted.
const RETAINING_PREFIX: &[u8] = b"cuMulticastBind";

/// Whether a name of the driver's looks as if it allocated or kept memory of the GPU or launched work on it. The
/// names that the guard hooks do so as well: it is asked about the others. NVML's names never do, since NVML
/// does neither.
pub fn is_suspicious(name: &[u8]) -> bool {
    // The next letter is a capital: `cuda...` and `cudbg...` are not the driver's API.
    let is_driver_name = name.starts_with(b"cu") && name.get(2).is_some_and(u8::is_ascii_uppercase);
    if !is_driver_name {
        return false;
    }
    let base = base(name);
    let looks_suspicious = base.starts_with(RETAINING_PREFIX)
        || SUSPICIOUS_WORDS.iter().any(|word| contains_ignoring_case(base, word))
        || base
            .strip_suffix(b"Create")
            .is_some_and(|kind| CREATED_OBJECTS.iter().any(|created| kind.ends_with(created)));
    looks_suspicious && !HARMLESS.iter().any(|harmless| harmless.as_bytes() == base)
}

/// A name without the endings that tell versions (`_v2`) and default streams (`_ptsz`, `_ptds`) of one
/// function apart.
pub fn base(name: &[u8]) -> &[u8] {
    let name = name.strip_suffix(b"_ptsz").or(name.strip_suffix(b"_ptds")).unwrap_or(name);
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    match name[..name.len() - digits].strip_suffix(b"_v") {
        Some(base) if digits > 0 => base,
        _ => name,
    }
}

/// Whether a name contains_ignoring_case a word in it, which is in small letters.
fn contains_ignoring_case(name: &[u8], word: &[u8]) -> bool {
    name.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests;
