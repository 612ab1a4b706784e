//! The process itself.

use super::{call, number};

const SET_MASK: usize = 2;
const MONOTONIC: usize = 1;
const MONOTONIC_COARSE: usize = 6;

/// Pid of the process, in its own pid namespace.
pub(crate) fn process() -> u32 {
    call(number::GETPID, [0; 6]).ok().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0)
}

/// Milliseconds of the monotonic clock.
pub(crate) fn milliseconds() -> u64 {
    clock(MONOTONIC)
}

/// As above, a few milliseconds late and cheaper.
pub(crate) fn coarse_milliseconds() -> u64 {
    clock(MONOTONIC_COARSE)
}

fn clock(id: usize) -> u64 {
    let mut time = [0_u64; 2];
    let address = time.as_mut_ptr() as usize;
    match call(number::CLOCK_GETTIME, [id, address, 0, 0, 0, 0]) {
        Ok(_) => time[0] * 1000 + time[1] / 1_000_000,
        Err(_) => 0,
    }
}

/// Sets the signals that this thread blocks; returns the previous mask. All ones block every
/// signal.
pub(crate) fn block_signals(mask: u64) -> u64 {
    let mut old = 0_u64;
    let (new, address) = ((&raw const mask) as usize, (&raw mut old) as usize);
    let _ = call(number::RT_SIGPROCMASK, [SET_MASK, new, address, size_of::<u64>(), 0, 0]);
    old
}

/// A number that differs between the living threads of the process: the address of the C library's data of this thread.
pub(crate) fn thread() -> u64 {
    let pointer: u64;
    // JUSTIFICATION: a system call for each launch is too slow.
    // SAFETY: the first word of that data is its own address, which the x86-64 ABI for thread-local storage requires.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    // JUSTIFICATION: as above.
    // SAFETY: programs may read the register, and that changes nothing.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nomem, nostack, preserves_flags));
    }
    pointer
}

/// Ends the process with an illegal instruction.
#[cfg(feature = "library")]
pub(crate) fn abort() {
    // JUSTIFICATION: a process can end by a fault or by a call; a fault leaves a trace.
    // SAFETY: nothing runs after it.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("ud2", options(nomem, nostack));
    }
    // JUSTIFICATION: as above.
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("udf #0", options(nomem, nostack));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_differ() {
        let own = thread();
        assert_eq!(own, thread());
        let other = std::thread::spawn(thread).join().expect("ended");
        assert_ne!(own, other);
    }
}
