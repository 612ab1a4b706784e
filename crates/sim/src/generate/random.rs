//! Random numbers that depend on the seed only, on every machine and in every version.

/// Draws numbers: `SplitMix64` (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number
/// Generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

/// 2^53: a `f64` cannot represent all whole numbers above it.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl Random {
    /// A generator for one named stream of a seed. Streams are independent: more waiting gangs do
    /// not change the running workloads.
    pub fn new(seed: u64, stream: &str) -> Self {
        // FNV-1a over the stream's name, so that streams start far apart.
        let hash = stream.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut random = Self(seed ^ hash);
        random.next_u64();
        random
    }

    /// A generator for a seed of its own, without streams.
    pub fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, each as likely as the other to within `bound` / 2^64; 0 if `bound` is.
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or_default()
    }

    /// An index of a list of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or_default()
    }

    /// A number from the first to the last.
    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last.saturating_sub(first) + 1)
    }

    /// True with this probability, in percent.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of the items, each as likely as its weight; none if no weight is above 0.
    pub fn weighted<'a, T>(&mut self, items: &'a [(u32, T)]) -> Option<&'a T> {
        let sum: u64 = items.iter().map(|(weight, _)| u64::from(*weight)).sum();
        let mut drawn = self.below(sum);
        items.iter().find_map(|(weight, item)| {
            let is_it = drawn < u64::from(*weight);
            drawn = drawn.saturating_sub(u64::from(*weight));
            is_it.then_some(item)
        })
    }

    /// Puts a list in any order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.index(last + 1));
        }
    }

    /// A number above 0 and up to 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / EXACT
    }

    /// An exponentially distributed number: the time to the next of independent events.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * libm::log(self.unit())
    }

    /// Log-normally distributed around a mean; `sigma` is the spread of its logarithm.
    pub fn log_normal(&mut self, mean: f64, sigma: f64) -> f64 {
        // Box and Muller.
        let (radius, angle) = (self.unit(), self.unit());
        let angle = 2.0 * std::f64::consts::PI * angle;
        let normal = (-2.0 * libm::log(radius)).sqrt() * libm::cos(angle);
        mean * libm::exp(sigma * normal - sigma * sigma / 2.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator's published test vector for seed 1234567.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut random = Random::seeded(1_234_567);
        let drawn = [random.next_u64(), random.next_u64(), random.next_u64()];
        let published =
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(drawn, published);
    }

    #[test]
    fn matters_of_one_seed_differ_and_repeat() {
        let draw = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.next_u64(), random.next_u64()]
        };
        assert_eq!(draw(1, "running"), draw(1, "running"));
        assert_ne!(draw(1, "running"), draw(1, "waiting"));
        assert_ne!(draw(1, "running"), draw(2, "running"));
    }

    #[test]
    fn draws_are_spread_as_they_should() {
        let mut random = Random::new(7, "test");
        let mut counts = [0_u32; 3];
        let (mut sum, mut gaps) = (0.0, 0.0);
        for _ in 0..100_000 {
            counts[*random.weighted(&[(1, 0), (0, 1), (3, 2)]).unwrap()] += 1;
            sum += random.log_normal(600.0, 1.0);
            gaps += random.exponential(30.0);
        }
        assert!((24_000..26_000).contains(&counts[0]) && counts[1] == 0, "{counts:?}");
        assert!((570.0..630.0).contains(&(sum / 1e5)), "{sum}");
        assert!((29.0..31.0).contains(&(gaps / 1e5)), "{gaps}");
        assert_eq!(random.weighted::<()>(&[]), None);
        assert_eq!((random.below(0), random.index(0), random.between(4, 4)), (0, 0, 4));
    }
}
