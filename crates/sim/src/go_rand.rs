//! Go's `math/rand`, number for number: the generator of simulators that are written in Go.
//!
//! A published arrival order with a seed can only be reproduced by the generator that drew it. This
//! is the additive lagged Fibonacci generator behind `rand.New(rand.NewSource(seed))`, and behind
//! the package's functions after `rand.Seed(seed)`. Go 1 guarantees it. `rand.Float64` and
//! the distributions are not implemented, because no caller needs them.

use std::num::{NonZeroU32, NonZeroU64};

mod cooked;
#[cfg(test)]
mod tests;

/// Words of state.
const LENGTH: usize = 607;
/// Distance of the second word that a step adds.
const TAP: usize = 273;
/// Modulus of the generator that spreads the seed over the state: a Mersenne prime.
const SPREAD_MODULUS: u32 = (1 << 31) - 1;
/// Go's replacement for a seed that is a multiple of the modulus.
const SEED_FOR_ZERO: u32 = 89_482_311;

/// A source of Go's pseudo-random numbers.
///
/// Seeds with the same remainder modulo 2³¹-1 give the same numbers, as in Go.
#[derive(Clone)]
pub struct GoRand {
    state: [u64; LENGTH],
    tap: usize,
    feed: usize,
}

impl GoRand {
    /// The generator as `rand.Seed(seed)` leaves it.
    pub fn new(seed: i64) -> Self {
        let mut spread = SeedGenerator::new(seed);
        let state = std::array::from_fn(|index| {
            let mut word = u64::from(spread.next()) << 40;
            word ^= u64::from(spread.next()) << 20;
            word ^= u64::from(spread.next());
            word ^ cooked::WORDS[index]
        });
        Self { state, tap: 0, feed: LENGTH - TAP }
    }

    /// `Uint64`: one step of the generator; every other method is made of these.
    pub fn uint64(&mut self) -> u64 {
        self.tap = self.tap.checked_sub(1).unwrap_or(LENGTH - 1);
        self.feed = self.feed.checked_sub(1).unwrap_or(LENGTH - 1);
        let word = self.state[self.feed].wrapping_add(self.state[self.tap]);
        self.state[self.feed] = word;
        word
    }

    /// `Int63`, and `Int` on 64-bit machines: from 0 to 2⁶³-1.
    pub fn int63(&mut self) -> u64 {
        self.uint64() & (u64::MAX >> 1)
    }

    /// `Uint32`: from 0 to 2³²-1.
    pub fn uint32(&mut self) -> u32 {
        // 63 bits less 31 are 32.
        u32::try_from(self.int63() >> 31).unwrap_or(u32::MAX)
    }

    /// `Int31`: from 0 to 2³¹-1.
    pub fn int31(&mut self) -> u32 {
        self.uint32() >> 1
    }

    /// `Int63n`: from 0 to `bound - 1`. Bounds above 2⁶³-1, which Go cannot name, count as that.
    pub fn int63n(&mut self, bound: NonZeroU64) -> u64 {
        let bound = bound.get().min(u64::MAX >> 1);
        if bound.is_power_of_two() {
            return self.int63() & (bound - 1);
        }
        // The largest accepted draw: a multiple of the bound, less one. Larger draws are repeated.
        let last = (1 << 63) - 1 - (1 << 63) % bound;
        loop {
            let drawn = self.int63();
            if drawn <= last {
                return drawn % bound;
            }
        }
    }

    /// `Int31n`: from 0 to `bound - 1`. Bounds above 2³¹-1, which Go cannot name, count as that.
    pub fn int31n(&mut self, bound: NonZeroU32) -> u32 {
        let bound = bound.get().min(u32::MAX >> 1);
        if bound.is_power_of_two() {
            return self.int31() & (bound - 1);
        }
        let last = (1 << 31) - 1 - (1 << 31) % bound;
        loop {
            let drawn = self.int31();
            if drawn <= last {
                return drawn % bound;
            }
        }
    }

    /// `Intn`: from 0 to `bound - 1`; bounds of up to 31 bits are drawn as `Int31n` draws them.
    pub fn intn(&mut self, bound: NonZeroU64) -> u64 {
        match NonZeroU32::try_from(bound) {
            Ok(small) if small.get() <= u32::MAX >> 1 => u64::from(self.int31n(small)),
            _ => self.int63n(bound),
        }
    }

    /// `Intn` as an index into `count` items; `None` without items.
    pub fn index(&mut self, count: usize) -> Option<usize> {
        let bound = NonZeroU64::new(u64::try_from(count).ok()?)?;
        usize::try_from(self.intn(bound)).ok()
    }

    /// `Perm`: the numbers below `count` in drawn order.
    pub fn perm(&mut self, count: usize) -> Vec<usize> {
        let mut order = vec![0; count];
        for item in 0..count {
            // The first draw has only one possible result, but Go draws it.
            let place = self.index(item + 1).unwrap_or(0);
            order[item] = order[place];
            order[place] = item;
        }
        order
    }

    /// `Shuffle` with a swap of the slice's elements.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let place = match u32::try_from(last + 1).ok().and_then(NonZeroU32::new) {
                Some(count) if count.get() <= u32::MAX >> 1 => self.below(count) as usize,
                _ => match NonZeroU64::new(last as u64 + 1) {
                    Some(count) => usize::try_from(self.int63n(count)).unwrap_or(last),
                    None => last,
                },
            };
            items.swap(last, place);
        }
    }

    /// Go's unexported `int31n`, which only `Shuffle` uses: a product's high half, after Lemire.
    fn below(&mut self, bound: NonZeroU32) -> u32 {
        let bound = bound.get();
        loop {
            let product = u64::from(self.uint32()) * u64::from(bound);
            let (high, low) = halves(product);
            // Most draws pass without the division.
            if low >= bound || low >= bound.wrapping_neg() % bound {
                return high;
            }
        }
    }
}

impl std::fmt::Debug for GoRand {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("GoRand").field("tap", &self.tap).finish_non_exhaustive()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is asked for")]
fn halves(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// The small generator that fills the large one's state: x ← 48271·x mod (2³¹-1).
struct SeedGenerator(u32);

impl SeedGenerator {
    fn new(seed: i64) -> Self {
        let seed = seed.rem_euclid(i64::from(SPREAD_MODULUS));
        let seed = u32::try_from(seed).ok().filter(|seed| *seed != 0).unwrap_or(SEED_FOR_ZERO);
        let mut spread = Self(seed);
        // Go throws the first twenty away.
        for _ in 0..20 {
            spread.next();
        }
        spread
    }

    fn next(&mut self) -> u32 {
        let product = u64::from(self.0) * 48_271 % u64::from(SPREAD_MODULUS);
        self.0 = u32::try_from(product).unwrap_or(SPREAD_MODULUS);
        self.0
    }
}
