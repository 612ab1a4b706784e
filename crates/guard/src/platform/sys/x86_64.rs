//! System calls of x86-64.

use core::arch::asm;

/// Enters the kernel.
///
/// # Safety
///
/// The memory accesses of the call must be allowed.
pub(super) unsafe fn syscall(number: usize, arguments: [usize; 6]) -> isize {
    let value;
    // JUSTIFICATION: the instruction has no other name in Rust.
    // SAFETY: the kernel changes rax, rcx and r11 and keeps all other registers; the caller
    // guarantees the memory accesses of the call.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number.cast_signed() => value,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    value
}

/// Numbers of the system calls.
pub(super) mod number {
    pub(in crate::platform::sys) const CLOSE: usize = 3;
    pub(in crate::platform::sys) const MMAP: usize = 9;
    pub(in crate::platform::sys) const MPROTECT: usize = 10;
    pub(in crate::platform::sys) const MUNMAP: usize = 11;
    pub(in crate::platform::sys) const RT_SIGPROCMASK: usize = 14;
    pub(in crate::platform::sys) const MADVISE: usize = 28;
    pub(in crate::platform::sys) const GETPID: usize = 39;
    pub(in crate::platform::sys) const SOCKET: usize = 41;
    pub(in crate::platform::sys) const CONNECT: usize = 42;
    pub(in crate::platform::sys) const SENDTO: usize = 44;
    pub(in crate::platform::sys) const RECVFROM: usize = 45;
    pub(in crate::platform::sys) const RECVMSG: usize = 47;
    pub(in crate::platform::sys) const FCNTL: usize = 72;
    pub(in crate::platform::sys) const FSTATFS: usize = 138;
    pub(in crate::platform::sys) const FUTEX: usize = 202;
    pub(in crate::platform::sys) const GETDENTS64: usize = 217;
    pub(in crate::platform::sys) const CLOCK_GETTIME: usize = 228;
    pub(in crate::platform::sys) const OPENAT: usize = 257;
    pub(in crate::platform::sys) const PPOLL: usize = 271;
    pub(in crate::platform::sys) const READ: usize = 0;
    pub(in crate::platform::sys) const STATX: usize = 332;
}
