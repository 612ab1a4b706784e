//! Prepares that wait for their domain, by claim, so that an unprepare or another agent ends them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio_util::sync::CancellationToken;

/// The waiting prepares of a node.
#[derive(Default)]
pub(super) struct Waiters {
    closing: CancellationToken,
    by_uid: Mutex<BTreeMap<String, Weak<CancellationToken>>>,
}

/// A prepare that may wait. Calls for one claim share it.
#[derive(Clone)]
pub(super) struct Waiter(Arc<CancellationToken>);

impl Waiters {
    /// Registers a prepare, until the value is dropped.
    pub(super) fn join(&self, uid: &str) -> Waiter {
        let mut by_uid = self.by_uid.lock().unwrap_or_else(PoisonError::into_inner);
        by_uid.retain(|_, waiter| waiter.strong_count() > 0);
        if let Some(waiter) = by_uid.get(uid).and_then(Weak::upgrade) {
            return Waiter(waiter);
        }
        let waiter = Arc::new(self.closing.child_token());
        by_uid.insert(uid.to_owned(), Arc::downgrade(&waiter));
        Waiter(waiter)
    }

    /// Ends the prepares of a claim that wait now.
    pub(super) fn cancel(&self, uid: &str) {
        let waiter = self.by_uid.lock().unwrap_or_else(PoisonError::into_inner).remove(uid);
        if let Some(waiter) = waiter.and_then(|waiter| waiter.upgrade()) {
            waiter.cancel();
        }
    }

    /// Ends all prepares that wait, now and later.
    pub(super) fn close(&self) {
        self.closing.cancel();
    }

    /// Whether all were ended.
    pub(super) fn is_closed(&self) -> bool {
        self.closing.is_cancelled()
    }
}

impl Waiter {
    /// Whether the prepare must end.
    pub(super) fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the prepare must end.
    pub(super) async fn cancelled(&self) {
        self.0.cancelled().await;
    }
}
