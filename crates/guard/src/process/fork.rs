//! State that the child of a fork inherits and must not keep.
//!
//! The lock of a slot belongs to an open file description that a mapping of the parent keeps, and
//! children do not inherit that mapping. Only while the lock is taken, a descriptor refers to it,
//! too. A child forked by another thread at that moment closes it as soon as it runs if the C
//! library calls fork handlers, else with its first hooked call. A child created without the C
//! library that calls nothing holds the slot until it ends. That error never exceeds a limit.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use super::{INSTANCE, PROCESS_ID, Process};
use crate::driver;
use crate::platform::elf;
use crate::platform::sys::file::{File, Identity};
use crate::platform::sys::task;
use crate::shares::MAX_SHARES;

/// A descriptor with which locks are being taken, for children to find.
struct LockDescriptor {
    /// The descriptor plus one; 0 for none, [`BEING_RECORDED`] before the words below are complete.
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
}

const BEING_RECORDED: i32 = -1;

/// One thread at a time takes locks of a share, so there is a place for each.
static LOCK_DESCRIPTORS: [LockDescriptor; MAX_SHARES] = [const {
    LockDescriptor {
        descriptor: AtomicI32::new(0),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
    }
}; MAX_SHARES];

/// A descriptor that is recorded for children to close, until drop.
#[derive(Debug)]
pub(crate) struct RecordedDescriptor(Option<usize>);

impl RecordedDescriptor {
    /// Records it. If all places are taken, children do not find it.
    pub(crate) fn new(descriptor: i32, identity: Identity) -> Self {
        let take = |place: &LockDescriptor| {
            let word = &place.descriptor;
            word.compare_exchange(0, BEING_RECORDED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let index = LOCK_DESCRIPTORS.iter().position(take);
        if let Some(place) = index.and_then(|index| LOCK_DESCRIPTORS.get(index)) {
            place.device.store(identity.device, Ordering::Relaxed);
            place.inode.store(identity.inode, Ordering::Relaxed);
            place.descriptor.store(descriptor + 1, Ordering::Release);
        }
        Self(index)
    }
}

impl Drop for RecordedDescriptor {
    fn drop(&mut self) {
        if let Some(place) = self.0.and_then(|index| LOCK_DESCRIPTORS.get(index)) {
            place.descriptor.store(0, Ordering::Relaxed);
        }
    }
}

impl LockDescriptor {
    /// Takes it out, in a child.
    fn take(&self) -> Option<(i32, Identity)> {
        let word = self.descriptor.swap(0, Ordering::Acquire);
        let identity = Identity {
            device: self.device.load(Ordering::Relaxed),
            inode: self.inode.load(Ordering::Relaxed),
        };
        (word > 0).then_some((word - 1, identity))
    }
}

/// Argument of `pthread_atfork`.
type Handler = Option<extern "C" fn()>;

static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// The process whose threads may be attaching to the drivers, as far as known.
static DRIVERS_PROCESS_ID: AtomicU32 = AtomicU32::new(0);

/// Called before a process starts. A thread of the parent that was attaching does not exist here.
pub(super) fn abandon_drivers() {
    let id = task::process();
    let before = DRIVERS_PROCESS_ID.swap(id, Ordering::Relaxed);
    if before != 0 && before != id {
        driver::CUDA.abandon();
        driver::NVML.abandon();
    }
}

/// Called when a process starts: drops what its parent had.
pub(super) fn drop_inherited() {
    let id = task::process();
    if PROCESS_ID.swap(id, Ordering::Relaxed) != id {
        close_inherited();
    }
}

fn close_inherited() {
    for (descriptor, wanted) in LOCK_DESCRIPTORS.iter().filter_map(LockDescriptor::take) {
        let file = File::from_descriptor(descriptor);
        // The program may have closed it and reused the number.
        match file.identity() {
            Ok((_, identity)) if identity == wanted => drop(file),
            _ => drop(file.into_descriptor()),
        }
    }
}

/// Registers a handler for children, once per address space.
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

/// Runs in a child, as its only thread.
extern "C" fn in_child() {
    let id = task::process();
    if PROCESS_ID.swap(id, Ordering::Relaxed) == id {
        // Another handler has called a hook before, so this process has started already.
        return;
    }
    abandon_drivers();
    close_inherited();
    let instance = INSTANCE.load(Ordering::Relaxed);
    if instance.is_null() {
        return;
    }
    // JUSTIFICATION: kernels before 4.14 do not zero it.
    // SAFETY: zero bytes are a `Process`. This is the only thread of the child, and calls of the
    // parent's other threads do not continue here.
    unsafe { core::ptr::write_bytes(instance.cast::<u8>(), 0, size_of::<Process>()) };
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn a_child_finds_the_descriptors_of_all_shares() {
        let identity = |inode| Identity { device: 1, inode };
        let recorded = [(10, 0), (11, 1), (12, 2)]
            .map(|(at, inode)| RecordedDescriptor::new(at, identity(inode)));
        let [first, second, third] = recorded;
        drop(second);
        let fourth = RecordedDescriptor::new(13, identity(3));
        let found: Vec<_> = LOCK_DESCRIPTORS.iter().filter_map(LockDescriptor::take).collect();
        let wanted = [(10, 0), (13, 3), (12, 2)].map(|(at, inode)| (at, identity(inode)));
        assert_eq!(found, wanted);
        drop([first, third, fourth]);
    }
}
