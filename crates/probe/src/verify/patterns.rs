//! The contents that memory is filled with.

/// A pattern of 8-byte words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern {
    kind: Kind,
    /// Distinguishes repetitions: where the walking bit begins, or what the random words follow from.
    seed: u64,
    /// Whether all bits are inverted.
    is_inverted: bool,
}

/// What a word follows from. The discriminants are those of the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Its own address: words that are mixed up are found.
    Address = 0,
    /// One bit that walks: each bit line has both values beside each.
    Walk = 1,
    /// A hash of its address.
    Hash = 2,
}

impl Pattern {
    /// The patterns of one pass over memory, each with its complement. Passes have different words.
    pub(super) fn of_pass(pass: u64) -> impl Iterator<Item = Self> {
        let kinds = [Kind::Address, Kind::Walk, Kind::Hash];
        kinds.into_iter().flat_map(move |kind| {
            [false, true].map(|is_inverted| Self { kind, seed: pass, is_inverted })
        })
    }

    /// Random words.
    pub(super) fn random(seed: u64) -> Self {
        Self { kind: Kind::Hash, seed, is_inverted: false }
    }

    /// The kernels' numbers for it: kind, seed, and the bits to invert.
    pub(super) fn numbers(self) -> (u32, u64, u64) {
        (self.kind as u32, self.seed, if self.is_inverted { u64::MAX } else { 0 })
    }

    /// The word of a number in memory that begins at `origin`; the kernels have the same.
    #[cfg(test)]
    pub(super) fn word(self, origin: u64, number: u64) -> u64 {
        let address = origin.wrapping_add(number << 3);
        let word = match self.kind {
            Kind::Address => address,
            Kind::Walk => 1 << ((address >> 3).wrapping_add(self.seed) & 63),
            Kind::Hash => hash(address ^ self.seed),
        };
        word ^ self.numbers().2
    }
}

/// Two rounds of multiplication and mixing, as of the generator `SplitMix64`.
pub(super) fn hash(value: u64) -> u64 {
    let mixed = value.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ mixed >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_sets_and_clears_every_bit_of_every_word() {
        for number in 0..200 {
            let words: Vec<u64> =
                Pattern::of_pass(3).map(|p| p.word(0x7000_0000, number)).collect();
            assert_eq!(words.iter().fold(0, |all, word| all | word), u64::MAX);
            assert_eq!(words.iter().fold(u64::MAX, |all, word| all & word), 0);
        }
    }

    #[test]
    fn words_of_other_places_and_passes_differ() {
        let random = Pattern::random(1);
        assert_ne!(random.word(0, 5), random.word(0, 6));
        assert_ne!(random.word(0, 5), random.word(1 << 21, 5));
        assert_ne!(random.word(0, 5), Pattern::random(2).word(0, 5));
        let walk = |pass| Pattern::of_pass(pass).nth(2).expect("a pattern").word(0, 0);
        assert_eq!([walk(0), walk(1), walk(64)], [1, 2, 1]);
    }

    #[test]
    fn an_address_is_its_own_word() {
        let address = Pattern::of_pass(0).next().expect("a pattern");
        assert_eq!(address.word(0x7f00_0000, 2), 0x7f00_0010);
        assert_eq!(Pattern::of_pass(0).nth(1).expect("a pattern").word(0x10, 0), !0x10);
    }
}
