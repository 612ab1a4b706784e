//! Stubs for unknown functions that a program looks up. They are part of the guard's code, since a kernel may refuse memory for new code.

use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicUsize, Ordering};

use super::StubRecord;

/// Number of stubs. NVIDIA's runtime library looks up fewer functions that a guard of an earlier release does not know.
const STUBS: usize = 64;

/// Size of the code of a stub in bytes.
const STUB_BYTES: usize = 16;

/// Longest name that is kept whole, in bytes.
const NAME_BYTES: usize = 64;

static RECORDS: [StubRecord; STUBS] = [const {
    StubRecord {
        name: AtomicPtr::new(core::ptr::null_mut()),
        length: AtomicUsize::new(0),
        real: AtomicUsize::new(0),
    }
}; STUBS];

/// Names of the records: those of a program may not stay.
static NAMES: [[AtomicU8; NAME_BYTES]; STUBS] =
    [const { [const { AtomicU8::new(0) }; NAME_BYTES] }; STUBS];

/// Number of records that are taken.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// The stub for a function of the driver, the same for the same function; `None` if all are taken. Threads that look a function up
/// for the first time at once may get two.
pub(super) fn of(name: &[u8], real: usize) -> Option<usize> {
    let code = code()?;
    let known = RECORDS.iter().position(|record| record.real.load(Ordering::Acquire) == real);
    let index = known.or_else(|| take(name, real))?;
    Some(code + index * STUB_BYTES)
}

fn take(name: &[u8], real: usize) -> Option<usize> {
    let next = |taken: usize| (taken < STUBS).then_some(taken + 1);
    let index = TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
    let (record, text) = (RECORDS.get(index)?, NAMES.get(index)?);
    for (place, byte) in text.iter().zip(name) {
        place.store(*byte, Ordering::Relaxed);
    }
    record.name.store(text.as_ptr().cast::<u8>().cast_mut(), Ordering::Relaxed);
    record.length.store(name.len().min(NAME_BYTES), Ordering::Relaxed);
    // Last: a record with a function is complete.
    record.real.store(real, Ordering::Release);
    Some(index)
}

/// Address of the first stub.
#[cfg(feature = "library")]
fn code() -> Option<usize> {
    Some((all as *const ()).expose_provenance().next_multiple_of(STUB_BYTES))
}

/// Tests of the crate have no stubs.
#[cfg(not(feature = "library"))]
fn code() -> Option<usize> {
    None
}

/// The stubs, one behind the other. Each continues at the entry with the address of its record.
#[cfg(all(feature = "library", target_arch = "x86_64"))]
#[unsafe(naked)]
extern "C" fn all() {
    core::arch::naked_asm!(
        ".set octavo_stub, 0",
        ".rept {stubs}",
        ".balign {stub_bytes}",
        "leaq {records} + octavo_stub * {record_bytes}(%rip), %r11",
        "jmp {entry}",
        ".set octavo_stub, octavo_stub + 1",
        ".endr",
        stubs = const STUBS,
        stub_bytes = const STUB_BYTES,
        records = sym RECORDS,
        record_bytes = const size_of::<StubRecord>(),
        entry = sym super::octavo_unknown_entry,
        options(att_syntax),
    )
}

/// As above.
#[cfg(all(feature = "library", target_arch = "aarch64"))]
#[unsafe(naked)]
extern "C" fn all() {
    core::arch::naked_asm!(
        ".set octavo_stub, 0",
        ".rept {stubs}",
        ".balign {stub_bytes}",
        "adrp x16, {records} + octavo_stub * {record_bytes}",
        "add x16, x16, :lo12:{records} + octavo_stub * {record_bytes}",
        "b {entry}",
        ".set octavo_stub, octavo_stub + 1",
        ".endr",
        stubs = const STUBS,
        stub_bytes = const STUB_BYTES,
        records = sym RECORDS,
        record_bytes = const size_of::<StubRecord>(),
        entry = sym super::octavo_unknown_entry,
    )
}
