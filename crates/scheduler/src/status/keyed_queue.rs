//! A bounded queue with one value per key.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A bounded queue with one value per key.
#[derive(Debug)]
pub(super) struct Queue<K, V> {
    capacity: usize,
    next: u64,
    order: BTreeMap<u64, K>,
    entries: HashMap<K, (u64, V)>,
}

impl<K: Clone + Eq + Hash, V> Queue<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, next: 0, order: BTreeMap::new(), entries: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &K> {
        self.order.values()
    }

    /// Puts a value in, replacing the key's older one. `false` if the queue is full.
    pub(super) fn put(&mut self, key: K, value: V) -> bool {
        if let Some((_, old)) = self.entries.get_mut(&key) {
            *old = value;
            return true;
        }
        if self.entries.len() >= self.capacity {
            return false;
        }
        self.order.insert(self.next, key.clone());
        self.entries.insert(key, (self.next, value));
        self.next += 1;
        true
    }

    pub(super) fn put_if_absent(&mut self, key: &K, value: V) {
        if !self.entries.contains_key(key) {
            self.put(key.clone(), value);
        }
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some((place, _)) = self.entries.remove(key) {
            self.order.remove(&place);
        }
    }

    /// Removes the first value with a key that `is_ready` accepts.
    pub(super) fn pop(&mut self, is_ready: impl Fn(&K) -> bool) -> Option<V> {
        let (place, key) = self.order.iter().find(|(_, key)| is_ready(key))?;
        let (place, key) = (*place, key.clone());
        self.order.remove(&place);
        self.entries.remove(&key).map(|(_, value)| value)
    }

    /// Removes the last value.
    pub(super) fn pop_last(&mut self) -> Option<V> {
        let (_, key) = self.order.pop_last()?;
        self.entries.remove(&key).map(|(_, value)| value)
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }
}
