//! Functions of a newer driver that look as if they allocated memory or launched work, and that the
//! guard does not know. Strict shares refuse them. Others admit them; they are counted and reported
//! to the agent.
//!
//! There are two ways to reach them: `cuGetProcAddress`, and the stub that a proxy has for each
//! such export of its driver. Calls through stubs wait at the gates of the shares, and fail at a fenced
//! one; those of an address that was looked up do not.

use core::sync::atomic::{AtomicUsize, Ordering};

use octavo_guard_abi::limits::STRICT;
use octavo_guard_abi::names;

use crate::driver::{CUDA, NVML};
use crate::gate;
use crate::process::{self, Process};

/// Data of a proxy's stub about its function.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct StubRecord {
    name: *const u8,
    length: usize,
    /// The driver's function, once it is known; 0 before.
    real: AtomicUsize,
}

impl StubRecord {
    fn name(&self) -> &[u8] {
        // JUSTIFICATION: a proxy is no Rust program.
        // SAFETY: the proxy's writer stored the name's address and length there, in memory that
        // stays.
        unsafe { core::slice::from_raw_parts(self.name, self.length) }
    }
}

/// Whether a name without a hook is suspicious.
pub(crate) fn is_unknown(name: &[u8]) -> bool {
    names::is_suspicious(name)
}

/// Whether a program may use such a function; counts and reports it.
pub(crate) fn admit_and_report(name: &[u8]) -> bool {
    let Ok(process) = process::get() else { return false };
    let is_admitted = !is_strict(process);
    for share in process.shares.all() {
        share.slot().unknown.fetch_add(1, Ordering::Relaxed);
    }
    process.agent_link.report_unknown(name, !is_admitted);
    is_admitted
}

/// One strict share suffices: the function may work on any GPU.
fn is_strict(process: &Process) -> bool {
    process.shares.all().iter().any(|share| {
        // Unreadable terms count as strict.
        share.limits.terms().map_or(true, |terms| terms.flags & STRICT != 0)
    })
}

/// Whether the gates of all shares let a call pass, after a wait if they are paused: it may allocate or launch on any GPU.
fn passes_gates() -> bool {
    let passed =
        process::get().and_then(|process| process.shares.all().iter().try_for_each(gate::pass));
    passed.is_ok()
}

/// Address at which a stub continues; 0 if the call is refused.
pub(crate) extern "C" fn resolve_stub(record: &StubRecord) -> usize {
    let name = record.name();
    if !admit_and_report(name) || !passes_gates() {
        return 0;
    }
    let cached = record.real.load(Ordering::Relaxed);
    if cached != 0 {
        return cached;
    }
    let driver = if name.starts_with(b"nvml") { &NVML } else { &CUDA };
    let address = driver.function(name);
    record.real.store(address, Ordering::Relaxed);
    address
}

/// Target of a proxy's stubs, with the address of a [`StubRecord`] in r11 (x86-64) or x16 (arm64)
/// and the caller's arguments in place. Continues in the driver's function, or returns
/// `CUDA_ERROR_NOT_SUPPORTED`.
#[cfg(all(feature = "library", target_arch = "x86_64"))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn octavo_unknown_entry() {
    core::arch::naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "push rax",
        "push r10",
        "sub rsp, 128",
        "movups [rsp], xmm0",
        "movups [rsp + 16], xmm1",
        "movups [rsp + 32], xmm2",
        "movups [rsp + 48], xmm3",
        "movups [rsp + 64], xmm4",
        "movups [rsp + 80], xmm5",
        "movups [rsp + 96], xmm6",
        "movups [rsp + 112], xmm7",
        "mov rdi, r11",
        "call {resolve_stub}",
        "mov r11, rax",
        "movups xmm0, [rsp]",
        "movups xmm1, [rsp + 16]",
        "movups xmm2, [rsp + 32]",
        "movups xmm3, [rsp + 48]",
        "movups xmm4, [rsp + 64]",
        "movups xmm5, [rsp + 80]",
        "movups xmm6, [rsp + 96]",
        "movups xmm7, [rsp + 112]",
        "add rsp, 128",
        "pop r10",
        "pop rax",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "pop rbp",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "mov eax, 801",
        "ret",
        resolve_stub = sym resolve_stub,
    )
}

/// As above.
#[cfg(all(feature = "library", target_arch = "aarch64"))]
#[unsafe(naked)]
#[unsafe(no_mangle)]
extern "C" fn octavo_unknown_entry() {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "mov x29, sp",
        "stp x0, x1, [sp, #-16]!",
        "stp x2, x3, [sp, #-16]!",
        "stp x4, x5, [sp, #-16]!",
        "stp x6, x7, [sp, #-16]!",
        "str x8, [sp, #-16]!",
        "stp q0, q1, [sp, #-32]!",
        "stp q2, q3, [sp, #-32]!",
        "stp q4, q5, [sp, #-32]!",
        "stp q6, q7, [sp, #-32]!",
        "mov x0, x16",
        "bl {resolve_stub}",
        "mov x16, x0",
        "ldp q6, q7, [sp], #32",
        "ldp q4, q5, [sp], #32",
        "ldp q2, q3, [sp], #32",
        "ldp q0, q1, [sp], #32",
        "ldr x8, [sp], #16",
        "ldp x6, x7, [sp], #16",
        "ldp x4, x5, [sp], #16",
        "ldp x2, x3, [sp], #16",
        "ldp x0, x1, [sp], #16",
        "ldp x29, x30, [sp], #16",
        "cbz x16, 2f",
        "br x16",
        "2:",
        "mov w0, #801",
        "ret",
        resolve_stub = sym resolve_stub,
    )
}
