//! `dlsym` and `dlvsym`, for preloading.
//!
//! Both continue in the C library by a jump, so that it sees the original caller: it derives the
//! meaning of `RTLD_NEXT` and `RTLD_DEFAULT` from the return address. Their result is not changed
//! on the way. Instead, the symbol table of a loaded driver is patched first, so that every lookup
//! finds the hooks. Only a driver in another namespace (`dlmopen`) is out of reach; there the
//! result is replaced by the hook. Unknown functions are in no table, and theirs is replaced by a stub.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::driver::{CUDA, NVML};
use crate::platform::elf;
use crate::platform::ffi::Text;
use crate::resolve::Resolution;
use crate::unknown;

static DLSYM: AtomicUsize = AtomicUsize::new(0);
static DLVSYM: AtomicUsize = AtomicUsize::new(0);

/// Where a lookup continues, or its result.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Lookup {
    address: usize,
    /// 0 if the lookup continues at `address`; else `address` is the result.
    is_answer: usize,
}

/// Called for each `dlsym`.
pub(crate) extern "C" fn on_dlsym(handle: usize, name: Text<'_>) -> Lookup {
    prepare(name);
    let address = next(&DLSYM, b"dlsym");
    if let Some(hook) = hook_for(address, handle, name) {
        return Lookup { address: hook, is_answer: 1 };
    }
    Lookup { address, is_answer: 0 }
}

/// Called for each `dlvsym`.
pub(crate) extern "C" fn on_dlvsym(_handle: usize, name: Text<'_>) -> Lookup {
    prepare(name);
    Lookup { address: next(&DLVSYM, b"dlvsym"), is_answer: 0 }
}

fn prepare(name: Text<'_>) {
    let name = name.bytes();
    if name.starts_with(b"cu") {
        CUDA.attach();
    } else if name.starts_with(b"nvml") {
        NVML.attach();
    }
}

/// The hook for a function in another namespace of the dynamic linker, or the stub for an unknown function; 0 if that is refused.
/// The content of a handle does not depend on the caller, so the guard may look it up; `RTLD_NEXT` and `RTLD_DEFAULT` do and are
/// left alone.
fn hook_for(dlsym: usize, handle: usize, name: Text<'_>) -> Option<usize> {
    const DEFAULT: usize = 0;
    const NEXT: usize = usize::MAX;
    let bytes = name.bytes();
    let driver = [&CUDA, &NVML]
        .into_iter()
        .find(|driver| driver.hooks().any(|hook| hook.name.as_bytes() == bytes));
    let is_of_interest = driver.is_some() || unknown::is_unknown(bytes);
    if !is_of_interest || dlsym == 0 || handle == DEFAULT || handle == NEXT {
        return None;
    }
    // JUSTIFICATION: the C library is found at run time.
    // SAFETY: `void *dlsym(void *, const char *)`.
    let dlsym: extern "C" fn(usize, Text<'_>) -> usize = unsafe { core::mem::transmute(dlsym) };
    let address = dlsym(handle, name);
    if address == 0 {
        return None;
    }
    if let Some(driver) = driver {
        return Some(driver.hook_in_namespace(bytes, address)).filter(|hook| *hook != 0);
    }
    match unknown::on_lookup(CUDA.export_at(address)?, address) {
        Resolution::Kept => None,
        Resolution::Hooked(stub) => Some(stub),
        Resolution::Refused => {
            // The caller asks `dlerror` why there is no address.
            let fail: extern "C" fn(usize, *const core::ffi::c_char) -> usize = {
                // JUSTIFICATION: as above.
                // SAFETY: as above.
                unsafe { core::mem::transmute(dlsym) }
            };
            fail(handle, c"(refused by Octavo's guard: strictness is Strict)".as_ptr());
            Some(0)
        }
    }
}

/// The function of that name in the first library after this one, as the dynamic linker would
/// continue: other libraries may be preloaded after the guard. Otherwise that of the C library.
fn next(cache: &AtomicUsize, name: &[u8]) -> usize {
    let address = cache.load(Ordering::Relaxed);
    if address != 0 {
        return address;
    }
    let here = (on_dlsym as *const ()).expose_provenance();
    let (mut is_behind, mut found) = (false, 0);
    elf::each(|library| {
        if is_behind {
            found = library.image.function(name).unwrap_or(0);
        } else {
            is_behind = library.image.contains(here);
        }
        found == 0
    });
    if found == 0 {
        found = elf::c_library(name);
    }
    cache.store(found, Ordering::Relaxed);
    found
}

/// Defines a function that calls `$on_lookup` for the address to continue at, with all arguments in
/// place. It returns null if there is none.
#[cfg(all(feature = "preload", target_arch = "x86_64"))]
macro_rules! interposed {
    ($name:ident, $on_lookup:ident) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            core::arch::naked_asm!(
                "push rdi",
                "push rsi",
                "push rdx",
                "call {on_lookup}",
                "mov r11, rdx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                "test r11, r11",
                "jnz 2f",
                "test rax, rax",
                "jz 2f",
                "jmp rax",
                "2:",
                "ret",
                on_lookup = sym $on_lookup,
            )
        }
    };
}

/// As above.
#[cfg(all(feature = "preload", target_arch = "aarch64"))]
macro_rules! interposed {
    ($name:ident, $on_lookup:ident) => {
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        extern "C" fn $name() {
            core::arch::naked_asm!(
                "stp x29, x30, [sp, #-48]!",
                "stp x0, x1, [sp, #16]",
                "str x2, [sp, #32]",
                "bl {on_lookup}",
                "mov x16, x0",
                "mov x17, x1",
                "ldr x2, [sp, #32]",
                "ldp x0, x1, [sp, #16]",
                "ldp x29, x30, [sp], #48",
                "cbnz x17, 2f",
                "cbz x16, 2f",
                "br x16",
                "2:",
                "mov x0, x16",
                "ret",
                on_lookup = sym $on_lookup,
            )
        }
    };
}

#[cfg(feature = "preload")]
interposed!(dlsym, on_dlsym);
#[cfg(feature = "preload")]
interposed!(dlvsym, on_dlvsym);
