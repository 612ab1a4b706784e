//! Tables of strings.

use std::collections::HashMap;

/// Zero-terminated strings, stored once each.
#[derive(Debug)]
pub(crate) struct Strings {
    bytes: Vec<u8>,
    offsets: HashMap<Vec<u8>, u32>,
}

impl Strings {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0], offsets: HashMap::new() }
    }

    /// Adds a string if needed. Returns its offset.
    #[allow(clippy::cast_possible_truncation, reason = "number and length of names are bounded")]
    pub(crate) fn intern(&mut self, string: &[u8]) -> u32 {
        if let Some(offset) = self.offsets.get(string) {
            return *offset;
        }
        let offset = self.bytes.len() as u32;
        self.bytes.extend_from_slice(string);
        self.bytes.push(0);
        self.offsets.insert(string.to_vec(), offset);
        offset
    }

    /// Offset of a string that was added.
    pub(crate) fn offset_of(&self, string: &[u8]) -> usize {
        self.offsets.get(string).map_or(0, |offset| *offset as usize)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
