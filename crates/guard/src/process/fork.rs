//! What a child of a fork inherits and must not keep.
//!
//! The lock of a slot belongs to an open file, which is a mapping's of the parent that no child has. Only while it
//! is being taken has it a descriptor, too; a child that another thread makes in that moment closes it as soon as
//! it runs, if the C library calls back on forks, and else with its first hooked call. One that was made behind
//! the C library's back just then and calls nothing holds the slot until it ends, which errs on the side of the
//! wall.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use super::{INSTANCE, PROCESS_ID, Process};
use crate::driver;
use crate::platform::elf;
use crate::platform::sys::file::{File, Identity};
use crate::platform::sys::task;

/// A descriptor through which locks are being taken, where a child finds it.
struct LockDescriptor {
    /// One more than the descriptor; 0: none.
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

/// One, which is what the thread that begins a process needs. Another thread's, which empties slots of the dead,
/// may stand here instead: it holds a lock for a moment, and gives it back by itself.
static LOCK_DESCRIPTOR: LockDescriptor = LockDescriptor {
    descriptor: AtomicI32::new(0),
    device: AtomicU64::new(0),
    inode: AtomicU64::new(0),
};

/// What `pthread_atfork` is given.
type Handler = Option<extern "C" fn()>;

static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// Remembers a descriptor for children to close, or that there is none any more.
pub(crate) fn set_lock_descriptor(open: Option<(i32, Identity)>) {
    let Some((descriptor, identity)) = open else {
        LOCK_DESCRIPTOR.descriptor.store(0, Ordering::Relaxed);
        return;
    };
    LOCK_DESCRIPTOR.device.store(identity.device, Ordering::Relaxed);
    LOCK_DESCRIPTOR.inode.store(identity.inode, Ordering::Relaxed);
    LOCK_DESCRIPTOR.descriptor.store(descriptor + 1, Ordering::Release);
}

/// The process whose threads may be at the drivers, as far as is known.
static DRIVERS_PROCESS_ID: AtomicU32 = AtomicU32::new(0);

/// Called before a process begins: where a thread of the parent's was at a driver, it is not in this process.
pub(super) fn abandon_drivers() {
    let id = task::process();
    let before = DRIVERS_PROCESS_ID.swap(id, Ordering::Relaxed);
    if before != 0 && before != id {
        driver::CUDA.abandon();
        driver::NVML.abandon();
    }
}

/// Called when a process begins: puts away what its parent had.
pub(super) fn drop_inherited() {
    let id = task::process();
    if PROCESS_ID.swap(id, Ordering::Relaxed) != id {
        close_inherited();
    }
}

fn close_inherited() {
    let descriptor = LOCK_DESCRIPTOR.descriptor.swap(0, Ordering::Acquire) - 1;
    if descriptor < 0 {
        return;
    }
    let file = File::from_descriptor(descriptor);
    let wanted = Identity {
        device: LOCK_DESCRIPTOR.device.load(Ordering::Relaxed),
        inode: LOCK_DESCRIPTOR.inode.load(Ordering::Relaxed),
    };
    // The program may have closed it and opened something of its own under the number.
    match file.identity() {
        Ok((_, identity)) if identity == wanted => drop(file),
        _ => drop(file.into_descriptor()),
    }
}

/// Has the C library call back in children, once for the address space.
pub(super) fn register_handler() {
    if IS_REGISTERED.swap(true, Ordering::Relaxed) {
        return;
    }
    let portable = elf::c_library(b"pthread_atfork");
    let glibc = elf::c_library(b"__register_atfork");
    if portable != 0 {
        // JUSTIFICATION: only the C library knows of forks.
        // SAFETY: `int pthread_atfork(void (*)(void), void (*)(void), void (*)(void))`.
        let register: extern "C" fn(Handler, Handler, Handler) -> i32 =
            unsafe { core::mem::transmute(portable) };
        register(None, None, Some(in_child));
    } else if glibc != 0 {
        // JUSTIFICATION: as above.
        // SAFETY: `int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *)`.
        let register: extern "C" fn(Handler, Handler, Handler, usize) -> i32 =
            unsafe { core::mem::transmute(glibc) };
        // No library owns the handler, since the guard is never unloaded.
        register(None, None, Some(in_child), 0);
    }
}

/// Runs in a child, where it is the only thread.
extern "C" fn in_child() {
    let id = task::process();
    if PROCESS_ID.swap(id, Ordering::Relaxed) == id {
        // Another handler has called a hook before: this process has begun already.
        return;
    }
    abandon_drivers();
    close_inherited();
    let instance = INSTANCE.load(Ordering::Relaxed);
    if instance.is_null() {
        return;
    }
    // JUSTIFICATION: a kernel before 4.14 does not empty it.
    // SAFETY: zero bytes are a `Process`, nobody else runs in this child, and a call of the parent's that
    // was under way on another thread does not go on here.
    unsafe { core::ptr::write_bytes(instance.cast::<u8>(), 0, size_of::<Process>()) };
}
