//! Functions that only jump to another one: for drivers whose `cuGetProcAddress` returns other
//! pointers than `dlsym`, and for names that this library does not have.

use std::ptr;

use crate::code::Code;
use crate::names;

/// Size of a jump with its target.
const JUMP: usize = 16;
/// Size of a page.
const PAGE: usize = 4096;

/// A function that jumps to `target`; the same one for the same name.
pub(crate) fn jump(name: &str, target: usize) -> Result<usize, Code> {
    names::issue_once(name, || make(target))
}

#[cfg(target_arch = "x86_64")]
fn code(target: usize) -> [u8; JUMP] {
    // `jmp *2(%rip)`, a two-byte `nop`, the target.
    let mut code = [0xff, 0x25, 2, 0, 0, 0, 0x66, 0x90, 0, 0, 0, 0, 0, 0, 0, 0];
    code[8..].copy_from_slice(&target.to_le_bytes());
    code
}

#[cfg(target_arch = "aarch64")]
fn code(target: usize) -> [u8; JUMP] {
    // `ldr x16, 8`, `br x16`, the target.
    let mut code = [0x50, 0, 0, 0x58, 0, 0x02, 0x1f, 0xd6, 0, 0, 0, 0, 0, 0, 0, 0];
    code[8..].copy_from_slice(&target.to_le_bytes());
    code
}

/// One page per jump: there are few, and executable pages are not writable.
fn make(target: usize) -> Result<usize, Code> {
    // JUSTIFICATION: the functions are known only at run time.
    // SAFETY: a new mapping that replaces nothing.
    let page = unsafe {
        libc::mmap(
            ptr::null_mut(),
            PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(Code::OUT_OF_MEMORY);
    }
    let code = code(target);
    // SAFETY: the page is new, writable and larger than this.
    unsafe { ptr::copy_nonoverlapping(code.as_ptr(), page.cast(), JUMP) };
    // SAFETY: the page is our own, and holds a whole function.
    let answer = unsafe { libc::mprotect(page, PAGE, libc::PROT_READ | libc::PROT_EXEC) };
    if answer == 0 { Ok(page.expose_provenance()) } else { Err(Code::OPERATING_SYSTEM) }
}
