//! The doorbell: a socket to the agent. A byte in it means that a thread waits.
//!
//! It is a socket and no event counter (`eventfd`), because a socket has an inode of its own. A program may close all its
//! files; then the number may be another file, into which nothing must be written. A pipe would raise a signal when the
//! agent is gone.

use crate::platform::sync::Mutex;
use crate::platform::sys::file::{File, Identity};
use crate::platform::sys::socket;

/// This process's end, if there is one.
#[derive(Debug)]
pub(super) struct Doorbell(Mutex<Option<(File, Identity)>>);

impl Doorbell {
    pub(super) const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Takes this process's end.
    pub(super) fn set(&self, end: Option<File>) {
        let end = end.map(File::move_high);
        let identity = end.as_ref().and_then(|end| end.identity().ok());
        self.drop_if_foreign();
        *self.0.lock() = end.zip(identity.map(|(_, identity)| identity));
    }

    /// Wakes the agent. A full socket wakes it, too.
    pub(super) fn ring(&self) {
        self.drop_if_foreign();
        if let Some((end, _)) = &*self.0.lock() {
            // The agent looks again in any case, only later.
            let _ = socket::send(end, &[1]);
        }
    }

    /// Lets go of a number that is another file by now, without closing it.
    fn drop_if_foreign(&self) {
        let mut end = self.0.lock();
        let is_ours = |(file, identity): &(File, Identity)| {
            file.identity().is_ok_and(|(_, now)| now == *identity)
        };
        if end.as_ref().is_some_and(|end| !is_ours(end))
            && let Some((file, _)) = end.take()
        {
            let _ = file.into_descriptor();
        }
    }
}
