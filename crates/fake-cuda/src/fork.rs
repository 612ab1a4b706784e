//! Children of `fork`: as with the real driver, they cannot use what their parent initialised.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::library;

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Has children of `fork` noticed from now on. Called once, by `cuInit`.
pub(crate) fn watch() {
    // JUSTIFICATION: a child has the parent's memory and no other entry to know what it is; asking
    // for the process's id at each call would cost more than the call.
    // SAFETY: the handler is a function of this library, which unregisters it when it is
    // unloaded; it does only what a signal handler may do.
    unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
}

/// Whether this process is a child of the one that called `cuInit`.
pub(crate) fn is_child() -> bool {
    IS_CHILD.load(Relaxed)
}

/// Lets the chips know the parent alone: its places end with it, not with its children.
extern "C" fn in_child() {
    IS_CHILD.store(true, Relaxed);
    if let Some(driver) = library::opened() {
        for process in driver.devices.iter().filter_map(|device| device.attached()) {
            process.leave_in_child();
        }
    }
}
