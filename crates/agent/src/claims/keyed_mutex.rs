//! A mutex per key: calls for one claim, or one GPU, run one after another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// One lock per key. A lock exists while it is held or awaited.
#[derive(Default)]
pub(super) struct KeyedMutex {
    locks: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// A claim's turn; it ends when this is dropped.
pub(super) struct KeyedGuard {
    _guard: OwnedMutexGuard<()>,
}

impl KeyedMutex {
    /// Waits for a claim's turn.
    pub(super) async fn lock(&self, uid: &str) -> KeyedGuard {
        let lock = self.entry(uid);
        KeyedGuard { _guard: lock.lock_owned().await }
    }

    /// Acquires a key's lock if it is free.
    pub(super) fn try_lock(&self, uid: &str) -> Option<KeyedGuard> {
        Some(KeyedGuard { _guard: self.entry(uid).try_lock_owned().ok()? })
    }

    /// A key's lock. Unused locks are dropped.
    fn entry(&self, uid: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(uid.to_owned()).or_default())
    }
}
