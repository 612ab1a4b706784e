//! Functions of a newer driver that look as if they allocated memory or launched work, and that the
//! guard does not know. Strict shares refuse them. Others admit them; they are counted and reported
//! to the agent.
//!
//! There are two ways to reach them. A proxy has a stub for each such export of its driver. And a program that looks one up gets a stub
//! of the guard ([`stubs`]), by `cuGetProcAddress`, and by `dlsym` where the guard is preloaded. Each call passes the gates of the
//! shares as a hooked one does, and fails at a fenced one. Calls are counted, and look-ups are not: NVIDIA's runtime library looks up
//! many functions that a program never calls.

use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use octavo_guard_abi::limits::STRICT;
use octavo_guard_abi::names;

use crate::driver::{CUDA, NVML};
use crate::gate;
use crate::hooks::launch;
use crate::process::{self, Process};
use crate::resolve::Resolution;
use crate::shares::Share;

mod stubs;

/// Data of a stub about its function. The writer of proxies knows its layout.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct StubRecord {
    name: AtomicPtr<u8>,
    length: AtomicUsize,
    /// The driver's function, once it is known; 0 before.
    real: AtomicUsize,
}

impl StubRecord {
    fn name(&self) -> &[u8] {
        let name = self.name.load(Ordering::Relaxed);
        if name.is_null() {
            return &[];
        }
        // JUSTIFICATION: a proxy is no Rust program.
        // SAFETY: the writer of the record stored the name's address and length there, in memory that stays and does not change.
        unsafe { core::slice::from_raw_parts(name, self.length.load(Ordering::Relaxed)) }
    }
}

/// Number of functions whose report is remembered.
const MAX_REPORTED: usize = 64;

/// Functions that this process has reported, each in the place of its record: reports take a lock, and calls are many.
#[derive(Debug)]
pub(crate) struct Reported {
    records: [AtomicUsize; MAX_REPORTED],
}

impl Reported {
    /// Whether a function is to be reported. Two functions of one place are reported in turn, and the agent link drops the repetition.
    fn is_new(&self, record: &StubRecord) -> bool {
        let address = core::ptr::from_ref(record).addr();
        let place = &self.records[address / size_of::<StubRecord>() % MAX_REPORTED];
        if place.load(Ordering::Relaxed) == address {
            return false;
        }
        place.store(address, Ordering::Relaxed);
        true
    }
}

/// Whether a name without a hook is suspicious.
pub(crate) fn is_unknown(name: &[u8]) -> bool {
    names::is_suspicious(name)
}

/// What a program gets that looks such a function up: a stub, or nothing in a strict share.
pub(crate) fn on_lookup(name: &[u8], real: usize) -> Resolution {
    let Ok(process) = process::get() else { return Resolution::Refused };
    if is_strict(process) {
        process.agent_link.report_unknown(name, true);
        return Resolution::Refused;
    }
    if let Some(stub) = stubs::of(name, real) {
        return Resolution::Hooked(stub);
    }
    // All stubs are taken. Calls cannot be seen, so the look-up counts as one.
    process.shares.all().iter().for_each(count);
    process.agent_link.report_unknown(name, false);
    Resolution::Kept
}

/// One strict share suffices: the function may work on any GPU.
fn is_strict(process: &Process) -> bool {
    process.shares.all().iter().any(|share| {
        // Unreadable terms count as strict.
        share.limits.terms().map_or(true, |terms| terms.flags & STRICT != 0)
    })
}

/// Counts a call. Two concurrent threads may count one: precision is not worth a locked instruction.
fn count(share: &Share) {
    let calls = &share.slot().unknown;
    calls.store(calls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// Whether a call may go on; counts it, and reports the first. It may wait at the gates of all shares, since the function may work on
/// any GPU.
fn is_admitted(record: &StubRecord, name: &[u8]) -> bool {
    let Ok(process) = process::get() else { return false };
    process.shares.all().iter().for_each(count);
    let is_refused = is_strict(process);
    if process.reported.is_new(record) {
        process.agent_link.report_unknown(name, is_refused);
    }
    let is_launch = name.starts_with(b"cuLaunch") || name.starts_with(b"cuGraphLaunch");
    !is_refused
        && process.shares.all().iter().try_for_each(gate::pass).is_ok()
        && (!is_launch || launch::pass_gate().is_ok())
}

/// Address at which a stub continues; 0 if the call is refused.
pub(crate) extern "C" fn resolve_stub(record: &StubRecord) -> usize {
    let name = record.name();
    if !is_admitted(record, name) {
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

/// Target of all stubs, with the address of a [`StubRecord`] in r11 (x86-64) or x16 (arm64)
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
