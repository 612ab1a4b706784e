//! Tables of strings.

use std::collections::HashMap;

/// Strings one behind the other, each ended by a zero; a string that is put in twice is there once.
#[derive(Debug)]
pub(crate) struct Strings {
    bytes: Vec<u8>,
    places: HashMap<Vec<u8>, u32>,
}

impl Strings {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0], places: HashMap::new() }
    }

    /// The place of a string.
    #[allow(clippy::cast_possible_truncation, reason = "number and length of names are bounded")]
    pub(crate) fn place(&mut self, string: &[u8]) -> u32 {
        if let Some(place) = self.places.get(string) {
            return *place;
        }
        let place = self.bytes.len() as u32;
        self.bytes.extend_from_slice(string);
        self.bytes.push(0);
        self.places.insert(string.to_vec(), place);
        place
    }

    /// The place of a string that was put in.
    pub(crate) fn find(&self, string: &[u8]) -> usize {
        self.places.get(string).map_or(0, |place| *place as usize)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}
