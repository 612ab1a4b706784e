//! `dlsym` and `dlvsym`, for when the guard is preloaded.
//!
//! Both go on in the C library's own by a jump, so that it sees its caller as if nobody had stood between:
//! it tells by the return address what "next" and "default" mean. The answer is not changed on the way:
//! before, the driver's own table was made to name the hooks, if the driver is loaded, so that every look-up
//! finds them, whoever asks and however. Only a driver in another namespace (`dlmopen`) is out of reach of
//! that; there the answer is a hook if it would be the hooked function.

use core::sync::atomic::{AtomicUsize, Ordering};

use crate::driver::{CUDA, NVML};
use crate::platform::elf;
use crate::platform::ffi::Text;

static DLSYM: AtomicUsize = AtomicUsize::new(0);
static DLVSYM: AtomicUsize = AtomicUsize::new(0);

/// Where a look-up goes on, or what it gives.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Lookup {
    address: usize,
    /// 0: the address is where to go on; else it is the answer.
    is_answer: usize,
}

/// Sees what is looked up with `dlsym`.
pub(crate) extern "C" fn on_dlsym(handle: usize, name: Text<'_>) -> Lookup {
    prepare(name);
    let address = next(&DLSYM, b"dlsym");
    if let Some(hook) = hook_for(address, handle, name) {
        return Lookup { address: hook, is_answer: 1 };
    }
    Lookup { address, is_answer: 0 }
}

/// Sees what is looked up with `dlvsym`.
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

/// The hook that stands in for a function in another namespace of the dynamic linker's. What a handle has does
/// not depend on who asks, so the guard may ask; what is "next" and "default" does, and is left alone.
fn hook_for(dlsym: usize, handle: usize, name: Text<'_>) -> Option<usize> {
    const DEFAULT: usize = 0;
    const NEXT: usize = usize::MAX;
    let bytes = name.bytes();
    let driver = [&CUDA, &NVML]
        .into_iter()
        .find(|driver| driver.hooks().any(|hook| hook.name.as_bytes() == bytes))?;
    if dlsym == 0 || handle == DEFAULT || handle == NEXT {
        return None;
    }
    // JUSTIFICATION: the C library is found at run time.
    // SAFETY: `void *dlsym(void *, const char *)`.
    let dlsym: extern "C" fn(usize, Text<'_>) -> usize = unsafe { core::mem::transmute(dlsym) };
    let address = dlsym(handle, name);
    if address == 0 {
        return None;
    }
    Some(driver.hook_in_namespace(bytes, address)).filter(|hook| *hook != 0)
}

/// The function of that name in the first library behind this one, as the dynamic linker itself would go on:
/// others may be preloaded behind the guard. Else the C library's.
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

/// Makes a function that asks `$on_lookup` where to go on, with all its arguments where they are; gives null where
/// there is nowhere to go.
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
