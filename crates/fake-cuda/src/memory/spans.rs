//! Free list over a range of numbers: addresses, or offsets in a slab.

use std::collections::BTreeMap;

/// The free parts of a range.
#[derive(Debug, Default)]
pub(crate) struct FreeList {
    /// Length by start. No two parts are adjacent.
    free: BTreeMap<u64, u64>,
    length: u64,
    free_length: u64,
}

impl FreeList {
    /// A range that is free.
    pub(crate) fn new(start: u64, length: u64) -> Self {
        Self { free: [(start, length)].into(), length, free_length: length }
    }

    /// Allocates from the first part that is long enough.
    pub(crate) fn allocate(&mut self, length: u64) -> Option<u64> {
        let (&start, &available) = self.free.iter().find(|(_, free)| **free >= length)?;
        self.free.remove(&start);
        if available > length {
            self.free.insert(start + length, available - length);
        }
        self.free_length -= length;
        Some(start)
    }

    /// Releases a part.
    pub(crate) fn release(&mut self, start: u64, length: u64) {
        self.free_length += length;
        let (mut start, mut length) = (start, length);
        if let Some((&before, &size)) = self.free.range(..start).next_back()
            && before + size == start
        {
            self.free.remove(&before);
            (start, length) = (before, size + length);
        }
        if let Some(size) = self.free.remove(&(start + length)) {
            length += size;
        }
        self.free.insert(start, length);
    }

    /// Whether nothing is allocated.
    pub(crate) fn is_unused(&self) -> bool {
        self.free_length == self.length
    }
}

#[cfg(test)]
mod tests;
