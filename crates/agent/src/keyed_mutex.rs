//! A mutex per key: calls for one claim, or one GPU, run one after another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

/// One lock per key. A lock exists while it is held or awaited.
#[derive(Default)]
pub(crate) struct KeyedMutex {
    locks: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

/// A key's lock; it ends when this is dropped.
pub(crate) struct KeyedGuard {
    _guard: OwnedMutexGuard<()>,
}

impl KeyedMutex {
    /// Waits for a key's lock.
    pub(crate) async fn lock(&self, key: &str) -> KeyedGuard {
        let lock = self.entry(key);
        KeyedGuard { _guard: lock.lock_owned().await }
    }

    /// Acquires a key's lock if it is free.
    pub(crate) fn try_lock(&self, key: &str) -> Option<KeyedGuard> {
        Some(KeyedGuard { _guard: self.entry(key).try_lock_owned().ok()? })
    }

    /// A key's lock. Unused locks are dropped.
    fn entry(&self, key: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(key.to_owned()).or_default())
    }
}
