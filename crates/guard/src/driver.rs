//! The driver's own libraries: their location, their functions, and the patch of their symbol
//! tables.

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

use crate::hooks::{self, Hook};
use crate::movable::{self, Entered};
use crate::nvml;
use crate::paths;
use crate::platform::elf::{self, Image, Segment};
use crate::platform::sync::Once;
use crate::platform::sys::memory::{self, Access};

mod functions;

pub(crate) use functions::call;

/// Address of a driver function; 0 while it is unknown and if the driver lacks it.
#[derive(Debug)]
pub(crate) struct FunctionAddress(AtomicUsize);

impl FunctionAddress {
    pub(crate) const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// The address, or 0.
    pub(crate) fn address(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// The address, after a search for the driver if needed; 0 if the driver lacks the function.
    pub(crate) fn resolved(&self, driver: &Driver) -> usize {
        match self.address() {
            0 => self.resolve(driver),
            address => address,
        }
    }

    #[cold]
    fn resolve(&self, driver: &Driver) -> usize {
        driver.attach();
        self.address()
    }

    /// Sets the address unless it is set. The first result was found before any table was patched.
    pub(crate) fn set_if_unset(&self, address: usize) {
        let _ = self.0.compare_exchange(0, address, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// One of the driver's libraries.
#[derive(Debug)]
pub(crate) struct Driver {
    once: Once,
    /// Prefix of its file name.
    file: &'static [u8],
    /// Its hooked functions.
    hooks: fn() -> &'static [&'static [Hook]],
    /// Functions that the guard calls itself, without a hook.
    unhooked: &'static [(&'static str, &'static FunctionAddress)],
    base: AtomicUsize,
    segments: AtomicPtr<Segment>,
    segment_count: AtomicUsize,
}

/// `libcuda.so.1`.
pub(crate) static CUDA: Driver = Driver::new(b"libcuda.so", || &hooks::CUDA, functions::TABLE);

/// `libnvidia-ml.so.1`.
pub(crate) static NVML: Driver = Driver::new(b"libnvidia-ml.so", || &hooks::NVML, nvml::TABLE);

/// Another guard, loaded from another file, already stands before the driver. It counts; this one
/// only forwards.
static OTHER_GUARD: AtomicBool = AtomicBool::new(false);

/// Whether another guard counts for this process.
pub(crate) fn has_other_guard() -> bool {
    OTHER_GUARD.load(Ordering::Relaxed)
}

impl Driver {
    const fn new(
        file: &'static [u8],
        hooks: fn() -> &'static [&'static [Hook]],
        unhooked: &'static [(&'static str, &'static FunctionAddress)],
    ) -> Self {
        Self {
            once: Once::new(),
            file,
            hooks,
            unhooked,
            base: AtomicUsize::new(0),
            segments: AtomicPtr::new(core::ptr::null_mut()),
            segment_count: AtomicUsize::new(0),
        }
    }

    /// Counts this thread as one in a function of the library, where that matters: memory of the GPU may be moved only while none is
    /// there. Waits while it is away.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered> {
        if core::ptr::eq(self, &raw const CUDA) { movable::enter() } else { None }
    }

    /// Its hooks.
    pub(crate) fn hooks(&self) -> impl Iterator<Item = &'static Hook> {
        (self.hooks)().iter().copied().flatten()
    }

    /// Finds the library once it is loaded: records its functions, prevents its unloading, and
    /// patches its symbol table to name the hooks.
    pub(crate) fn attach(&self) {
        self.attach_to(|| self.find());
    }

    /// The hook for a function of this library at an address in another namespace of the dynamic
    /// linker (`dlmopen`). Returns 0 if the function is not hooked, or lies where the table names
    /// the hooks already.
    ///
    /// The linker's list does not include libraries of other namespaces. A program with such a
    /// handle looks its functions up one by one.
    #[cfg_attr(
        not(feature = "preload"),
        allow(dead_code, reason = "used only by exports of the shared object")
    )]
    pub(crate) fn hook_in_namespace(&self, name: &[u8], address: usize) -> usize {
        let Some(hook) = self.hooks().find(|hook| hook.name.as_bytes() == name) else { return 0 };
        if hook.address() == address || elf::is_listed(address) {
            return 0;
        }
        let Some((image, path)) = elf::library_at(address) else { return 0 };
        let path = LibraryPath::of(path);
        let file = path.bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
        let start = file.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        if !file[start..].starts_with(self.file) || image.needs(b"liboctavo_guard") {
            return 0;
        }
        self.attach_to(|| Some((image, path)));
        hook.address()
    }

    fn attach_to(&self, find: impl FnOnce() -> Option<(Image, LibraryPath)>) {
        if self.once.is_done() {
            return;
        }
        let Some((image, path)) = find() else { return };
        // Pinning precedes `once`. The constructor of a library may call a hook while it holds the
        // dynamic linker's lock; it would wait here for a thread that waits for that lock.
        pin(&path);
        self.once.run(|| {
            self.base.store(image.base(), Ordering::Relaxed);
            self.record_functions(&image);
            self.patch(&image);
            let (segments, count) = image.segments_at();
            self.segment_count.store(count, Ordering::Relaxed);
            self.segments.store(segments.cast_mut(), Ordering::Release);
            true
        });
    }

    /// Makes `attach` possible again after a fork, if a thread of the parent was in it.
    pub(crate) fn abandon(&self) {
        self.once.abandon();
    }

    /// A function that the library exports, unhooked even if there is a hook; 0 if it has none.
    #[cfg_attr(
        not(feature = "library"),
        allow(dead_code, reason = "used only by exports of the shared object")
    )]
    pub(crate) fn function(&self, name: &[u8]) -> usize {
        self.attach();
        if let Some(hook) = self.hooks().find(|hook| hook.name.as_bytes() == name) {
            return hook.real.address();
        }
        self.image().and_then(|image| image.function(name)).unwrap_or(0)
    }

    /// Name of the function that the library exports at an address, if any.
    pub(crate) fn export_at(&self, address: usize) -> Option<&'static [u8]> {
        self.image().and_then(|image| image.name_at(address))
    }

    fn image(&self) -> Option<Image> {
        let segments = self.segments.load(Ordering::Acquire);
        let count = self.segment_count.load(Ordering::Relaxed);
        if segments.is_null() {
            return None;
        }
        // JUSTIFICATION: the library belongs to the dynamic linker.
        // SAFETY: `attach` found these, and keeps the library from being unloaded.
        unsafe { Image::of(self.base.load(Ordering::Relaxed), segments, count) }
    }

    /// The library under the folder of the driver's own files. If no proxies are mounted, the first
    /// library of that name that is not a proxy.
    fn find(&self) -> Option<(Image, LibraryPath)> {
        let (mut own, mut other) = (None, None);
        elf::each(|library| {
            if !library.base_name().starts_with(self.file) {
                return true;
            }
            if paths::is_driver_file(library.path) {
                own = Some((library.image, LibraryPath::of(library.path)));
            } else if other.is_none() && !library.image.needs(b"liboctavo_guard") {
                other = Some((library.image, LibraryPath::of(library.path)));
            }
            own.is_none()
        });
        own.or(other)
    }

    fn record_functions(&self, image: &Image) {
        for hook in self.hooks() {
            // After a fork interrupted an attempt, the table may name the hooks already.
            let address =
                image.function(hook.name.as_bytes()).filter(|address| *address != hook.address());
            if let Some(address) = address {
                if !image.contains(address) && is_in_guard(address) {
                    OTHER_GUARD.store(true, Ordering::Relaxed);
                }
                hook.real.set_if_unset(address);
            }
        }
        for (name, slot) in self.unhooked {
            if let Some(address) = image.function(name.as_bytes()) {
                slot.set_if_unset(address);
            }
        }
    }

    /// Writes the addresses of the hooks into the library's symbol table. This covers readers that
    /// do not use the proxy: plugins with `RTLD_DEEPBIND`, and programs that walk ELF tables. Best
    /// effort: if the kernel forbids it, the proxy still works.
    fn patch(&self, image: &Image) {
        let symbols = || {
            self.hooks().filter_map(|hook| {
                let (address, _) = image.symbol(hook.name.as_bytes())?;
                Some((address + offset_of!(elf::Symbol, value), hook))
            })
        };
        let Some(first) = symbols().map(|(address, _)| address).min() else { return };
        let Some(last) = symbols().map(|(address, _)| address).max() else { return };
        let Some((write, execute)) = image.access(first) else { return };
        let bytes = last + size_of::<u64>() - first;
        // JUSTIFICATION: the table is mapped read-only.
        // SAFETY: the pages only gain permissions.
        if unsafe { memory::protect(first, bytes, Access { write: true, execute }) }.is_err() {
            return;
        }
        for (address, hook) in symbols() {
            let value = hook.address().wrapping_sub(image.base()) as u64;
            // JUSTIFICATION: the table belongs to the dynamic linker and is no Rust value.
            // SAFETY: eight bytes of a symbol in a table that has just become writable. The address
            // is aligned, so a reader on another thread sees the old or the new word.
            unsafe { core::ptr::with_exposed_provenance_mut::<u64>(address).write_volatile(value) };
        }
        // JUSTIFICATION: this restores the previous permissions.
        // SAFETY: only this function writes to the table.
        let _ = unsafe { memory::protect(first, bytes, Access { write, execute }) };
    }
}

/// Whether an address lies in a library that is a guard.
fn is_in_guard(address: usize) -> bool {
    let mut is_guard = false;
    elf::each(|library| {
        let here = library.image.contains(address);
        is_guard = here && library.image.function(b"octavo_unknown_entry").is_some();
        !here
    });
    is_guard
}

/// Keeps a library loaded until the process ends, because the guard holds addresses in it.
fn pin(path: &LibraryPath) {
    /// `RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE`.
    const FLAGS: i32 = 2 | 4 | 0x1000;
    let open = elf::c_library(b"dlopen");
    if open == 0 {
        return;
    }
    // JUSTIFICATION: only the dynamic linker can keep a library loaded.
    // SAFETY: `void *dlopen(const char *, int)`.
    let open: extern "C" fn(*const u8, i32) -> *mut core::ffi::c_void =
        unsafe { core::mem::transmute(open) };
    open(path.bytes.as_ptr(), FLAGS);
}

/// A path that ends in zero.
struct LibraryPath {
    bytes: [u8; 1024],
}

impl LibraryPath {
    /// Copies a path; a path that is too long becomes empty.
    fn of(path: &[u8]) -> Self {
        let mut bytes = [0; 1024];
        if path.len() < bytes.len() {
            bytes[..path.len()].copy_from_slice(path);
        }
        Self { bytes }
    }
}
