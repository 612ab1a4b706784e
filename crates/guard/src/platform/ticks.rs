//! A clock that costs no system call: the processor's own counter.

/// The counter of this processor, in ticks since an unknown time. All processors of a machine agree closely.
#[cfg(target_arch = "x86_64")]
pub(crate) fn now() -> u64 {
    // JUSTIFICATION: the instruction is the clock.
    // SAFETY: it reads a counter and changes nothing; every processor of this architecture has it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// As above.
#[cfg(target_arch = "aarch64")]
pub(crate) fn now() -> u64 {
    let ticks;
    // JUSTIFICATION: the register is the clock.
    // SAFETY: programs may read it, and that changes nothing.
    unsafe {
        core::arch::asm!("mrs {}, cntvct_el0", out(reg) ticks, options(nomem, nostack, preserves_flags));
    }
    ticks
}

/// Ticks of about 50 microseconds: at 2 to 4 GHz.
#[cfg(target_arch = "x86_64")]
fn interval() -> u64 {
    150_000
}

/// Ticks of 50 microseconds.
#[cfg(target_arch = "aarch64")]
fn interval() -> u64 {
    let frequency: u64;
    // JUSTIFICATION: the register says how fast the clock is.
    // SAFETY: programs may read it, and that changes nothing.
    unsafe {
        core::arch::asm!("mrs {}, cntfrq_el0", out(reg) frequency, options(nomem, nostack, preserves_flags));
    }
    frequency / 20_000
}

/// Whether about 50 microseconds have passed since a time.
pub(crate) fn have_passed(since: u64) -> bool {
    is_over(since, now())
}

fn is_over(since: u64, now: u64) -> bool {
    now.wrapping_sub(since) >= interval()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_ends_once() {
        let since = u64::MAX - 5;
        assert!(!is_over(since, since.wrapping_add(interval() - 1)));
        assert!(is_over(since, since.wrapping_add(interval())));
    }

    #[test]
    fn the_clock_goes_on() {
        let since = now();
        while !have_passed(since) {
            core::hint::spin_loop();
        }
    }
}
