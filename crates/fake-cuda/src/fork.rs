//! Children of `fork`: as with the real driver, they cannot use their parent's initialisation.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::checkpoint::server;
use crate::library;

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Detects children of `fork` from now on. `cuInit` calls it once.
pub(crate) fn watch() {
    // JUSTIFICATION: a child has the parent's memory and no other way to detect that it is a child;
    // querying the pid on each call would cost more than the call.
    // SAFETY: the handler is a function of this library, which unregisters it when it is unloaded;
    // it does only what is async-signal-safe.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Whether this process is a child of the one that called `cuInit`.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Relaxed)
}

/// Leaves the slots on the GPUs to the parent: they must end with it, not with its children.
extern "C" fn in_child() {
    IS_CHILD.store(true, Relaxed);
    server::leave_in_child();
    if let Some(driver) = library::opened() {
        for process in driver.devices.iter().filter_map(|device| device.attached()) {
            process.leave_in_child();
        }
    }
}
