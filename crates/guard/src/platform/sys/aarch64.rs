//! System calls of AArch64.

use core::arch::asm;

/// Enters the kernel.
///
/// # Safety
///
/// The memory accesses of the call must be allowed.
pub(super) unsafe fn syscall(number: usize, arguments: [usize; 6]) -> isize {
    let value;
    // JUSTIFICATION: the instruction has no other name in Rust.
    // SAFETY: the kernel changes x0 and keeps all other registers; the caller guarantees the memory
    // accesses of the call.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") arguments[0].cast_signed() => value,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            in("x5") arguments[5],
            options(nostack),
        );
    }
    value
}

/// Numbers of the system calls.
pub(super) mod number {
    pub(in crate::platform::sys) const FCNTL: usize = 25;
    pub(in crate::platform::sys) const FSTATFS: usize = 44;
    pub(in crate::platform::sys) const OPENAT: usize = 56;
    pub(in crate::platform::sys) const CLOSE: usize = 57;
    pub(in crate::platform::sys) const GETDENTS64: usize = 61;
    pub(in crate::platform::sys) const READ: usize = 63;
    pub(in crate::platform::sys) const PPOLL: usize = 73;
    pub(in crate::platform::sys) const FUTEX: usize = 98;
    pub(in crate::platform::sys) const CLOCK_GETTIME: usize = 113;
    pub(in crate::platform::sys) const RT_SIGPROCMASK: usize = 135;
    pub(in crate::platform::sys) const GETPID: usize = 172;
    pub(in crate::platform::sys) const SOCKET: usize = 198;
    pub(in crate::platform::sys) const CONNECT: usize = 203;
    pub(in crate::platform::sys) const SENDTO: usize = 206;
    pub(in crate::platform::sys) const RECVFROM: usize = 207;
    pub(in crate::platform::sys) const RECVMSG: usize = 212;
    pub(in crate::platform::sys) const MUNMAP: usize = 215;
    pub(in crate::platform::sys) const MMAP: usize = 222;
    pub(in crate::platform::sys) const MPROTECT: usize = 226;
    pub(in crate::platform::sys) const MADVISE: usize = 233;
    pub(in crate::platform::sys) const STATX: usize = 291;
}
