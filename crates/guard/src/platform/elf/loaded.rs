//! The loaded libraries, in the dynamic linker's order.

use core::arch::asm;
use core::ffi::c_void;
use core::ptr;

use super::{Image, Segment};

/// `struct dl_phdr_info`, the members that all C libraries have.
#[repr(C)]
struct PhdrInfo {
    base: usize,
    name: *const u8,
    segments: *const Segment,
    segment_count: u16,
}

/// A loaded library.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Library<'a> {
    /// Its path as loaded; empty for the program itself.
    pub(crate) path: &'a [u8],
    /// Its tables.
    pub(crate) image: Image,
}

impl Library<'_> {
    /// Last component of its path.
    pub(crate) fn base_name(&self) -> &[u8] {
        let start = self.path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        &self.path[start..]
    }
}

type Visit = extern "C" fn(*const PhdrInfo, usize, *mut c_void) -> i32;

/// Passes each library to `visit` until `visit` returns `false`.
///
/// The dynamic linker's lock is held meanwhile, so `visit` must not load anything.
pub(crate) fn each<F: FnMut(&Library<'_>) -> bool>(mut visit: F) {
    let address = dl_iterate_phdr_address();
    if address == 0 {
        return;
    }
    // JUSTIFICATION: only the dynamic linker knows the loaded libraries.
    // SAFETY: the address is that of `dl_iterate_phdr`, which has this signature in every C
    // library.
    let iterate: extern "C" fn(Visit, *mut c_void) -> i32 =
        unsafe { core::mem::transmute(address) };
    iterate(visit_entry::<F>, (&raw mut visit).cast());
}

extern "C" fn visit_entry<F: FnMut(&Library<'_>) -> bool>(
    info: *const PhdrInfo,
    _size: usize,
    visit: *mut c_void,
) -> i32 {
    // JUSTIFICATION: C passes both as pointers.
    // SAFETY: the dynamic linker passes a description that lives through this call.
    let info = unsafe { &*info };
    // JUSTIFICATION: as above.
    // SAFETY: this is the `visit` of `each`, which waits for this call and does not use it
    // meanwhile.
    let visit = unsafe { &mut *visit.cast::<F>() };
    // JUSTIFICATION: as above.
    // SAFETY: the dynamic linker lists loaded libraries only.
    let image = unsafe { Image::of(info.base, info.segments, usize::from(info.segment_count)) };
    let Some(image) = image else { return 0 };
    let path = text(info.name);
    i32::from(!visit(&Library { path, image }))
}

/// A C string; empty for a null pointer.
fn text<'a>(start: *const u8) -> &'a [u8] {
    if start.is_null() {
        return &[];
    }
    let mut length = 0;
    // JUSTIFICATION: names come from C.
    // SAFETY: the dynamic linker's names end in zero, and no later byte is read.
    while unsafe { ptr::read(start.wrapping_add(length)) } != 0 {
        length += 1;
    }
    // JUSTIFICATION: as above.
    // SAFETY: these bytes have just been read; the dynamic linker does not change names of loaded
    // libraries.
    unsafe { core::slice::from_raw_parts(start, length) }
}

/// Whether an address lies in a listed library.
pub(crate) fn is_listed(address: usize) -> bool {
    let mut is_listed = false;
    each(|library| {
        is_listed = library.image.contains(address);
        !is_listed
    });
    is_listed
}

/// `Dl_info` of `dladdr`.
#[repr(C)]
struct DlInfo {
    path: *const u8,
    base: usize,
    name: *const u8,
    address: usize,
}

/// `Elf64_Ehdr`, the members that are needed.
#[derive(Clone, Copy)]
#[repr(C)]
struct ElfHeader {
    _identity: [u8; 32],
    segments: u64,
    _sections: [u8; 14],
    segment_size: u16,
    segment_count: u16,
}

/// The library at an address, in any namespace of the dynamic linker, and its path.
pub(crate) fn library_at(address: usize) -> Option<(Image, &'static [u8])> {
    let dladdr = super::c_library(b"dladdr");
    if dladdr == 0 {
        return None;
    }
    // JUSTIFICATION: the list covers one namespace only.
    // SAFETY: `int dladdr(const void *, Dl_info *)`.
    let dladdr: extern "C" fn(usize, *mut DlInfo) -> i32 = unsafe { core::mem::transmute(dladdr) };
    let mut info = DlInfo { path: ptr::null(), base: 0, name: ptr::null(), address: 0 };
    if dladdr(address, &raw mut info) == 0 || info.base == 0 {
        return None;
    }
    let header = ptr::with_exposed_provenance::<ElfHeader>(info.base);
    // JUSTIFICATION: the header of a library is memory outside Rust's view.
    // SAFETY: the file's header is mapped at the base address that the dynamic linker reports.
    let header = unsafe { header.read_unaligned() };
    if usize::from(header.segment_size) != size_of::<Segment>() {
        return None;
    }
    let segments = info.base.wrapping_add(usize::try_from(header.segments).ok()?);
    let segments = ptr::with_exposed_provenance(segments);
    // JUSTIFICATION: as above.
    // SAFETY: the header of a loaded library says so.
    let image = unsafe { Image::of(info.base, segments, usize::from(header.segment_count)) };
    Some((image?, text(info.path)))
}

/// Address of `dl_iterate_phdr`, the only function that the guard asks the dynamic linker to bind;
/// 0 if there is none. No symbol version is named, so any version binds.
fn dl_iterate_phdr_address() -> usize {
    let address;
    #[cfg(target_arch = "x86_64")]
    // JUSTIFICATION: stable Rust has no weak symbols.
    // SAFETY: reads one word of this library's own offset table.
    unsafe {
        asm!(
            ".weak dl_iterate_phdr",
            "mov {0}, qword ptr [rip + dl_iterate_phdr@GOTPCREL]",
            out(reg) address,
            options(nostack, preserves_flags, readonly, pure),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // JUSTIFICATION: stable Rust has no weak symbols.
    // SAFETY: reads one word of this library's own offset table.
    unsafe {
        asm!(
            ".weak dl_iterate_phdr",
            "adrp {0}, :got:dl_iterate_phdr",
            "ldr {0}, [{0}, :got_lo12:dl_iterate_phdr]",
            out(reg) address,
            options(nostack, preserves_flags, readonly, pure),
        );
    }
    address
}
