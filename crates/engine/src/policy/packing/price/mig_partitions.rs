//! The MIG instances that still fit on a GPU, and their total worth.
//!
//! Instances have fixed placements: two small ones may leave as many slices as a large one needs,
//! but no placement for it. The residual of a partitioned GPU is therefore its set of slices, not
//! their number.

use std::ops::Add;

use crate::gpu::{MigProfile, Slices};

/// Possible placements of instances of some profiles.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MigPartitions {
    /// Profiles by index, and their placements.
    places: Vec<(usize, u16)>,
    /// How many memory slices there are; the media engines come behind them.
    slices: u8,
    /// All that any place takes.
    all: u16,
}

impl MigPartitions {
    /// Places of these profiles.
    pub(super) fn of<'a>(profiles: impl IntoIterator<Item = &'a MigProfile>) -> Self {
        let mut places = Vec::new();
        for (index, profile) in profiles.into_iter().enumerate() {
            places.extend(profile.places().map(|place| (index, place)));
        }
        let all = places.iter().fold(Slices::NONE, |all, (_, place)| all.plus(*place));
        let mut partitions = Self { places: Vec::new(), slices: end(all), all: 0 };
        partitions.all = partitions.dense(all);
        partitions.places =
            places.iter().map(|(index, place)| (*index, partitions.dense(*place))).collect();
        partitions
    }

    /// Worth of the best instances for each set of taken slices, by [`Self::index`], at these
    /// prices. `nothing` is the worth of no instance.
    pub(super) fn worths<T>(&self, prices: &[T], nothing: T) -> Vec<T>
    where
        T: Copy + PartialOrd + Add<Output = T>,
    {
        let mut worths = vec![nothing; usize::from(self.all) + 1];
        // Larger sets of taken slices have larger numbers and are computed first.
        for taken in (0..=self.all).rev() {
            for (profile, place) in &self.places {
                if taken & place != 0 {
                    continue;
                }
                let Some(price) = prices.get(*profile) else { continue };
                let worth = *price + worths[usize::from(taken | place)];
                if worth > worths[usize::from(taken)] {
                    worths[usize::from(taken)] = worth;
                }
            }
        }
        worths
    }

    /// The best instances of an idle GPU: their worth and the number of each profile.
    pub(super) fn best(&self, prices: &[f64]) -> (f64, Vec<f64>) {
        let worths = self.worths(prices, 0.0);
        let mut counts = vec![0.0; prices.len()];
        let mut taken = 0;
        while worths[usize::from(taken)] > 0.0 {
            let is_best = |(profile, place): &&(usize, u16)| {
                let rest = worths.get(usize::from(taken | place));
                taken & place == 0
                    && rest
                        .is_some_and(|rest| prices[*profile] + rest >= worths[usize::from(taken)])
            };
            let Some((profile, place)) = self.places.iter().find(is_best) else { break };
            counts[*profile] += 1.0;
            taken |= place;
        }
        (worths[0], counts)
    }

    /// Index of the taken slices; slices that no profile can use are ignored.
    pub(super) fn index(&self, taken: Slices) -> usize {
        usize::from(self.dense(taken) & self.all)
    }

    /// Slices with the media engines right behind the last memory slice.
    fn dense(&self, slices: Slices) -> u16 {
        let memory = slices.minus(Slices::MEDIA).0 & ((1 << self.slices) - 1);
        let media = if slices.overlaps(Slices::MEDIA) { 1 << self.slices } else { 0 };
        memory | media
    }
}

/// One more than the last memory slice.
fn end(slices: Slices) -> u8 {
    let unused = slices.minus(Slices::MEDIA).0.leading_zeros();
    u8::try_from(u16::BITS - unused).unwrap_or(Slices::MAX_SLICES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(milli: u16, size: u8, starts: &[u8], has_media: bool) -> MigProfile {
        let (name, starts) = (format!("{milli}"), starts.to_vec());
        MigProfile { name, milli, memory_mib: 0, size, starts, has_media }
    }

    fn profiles() -> [MigProfile; 4] {
        [
            profile(142, 1, &[0, 1, 2, 3, 4, 5, 6], false),
            profile(142, 1, &[0, 1, 2, 3, 4, 5, 6], true),
            profile(428, 4, &[0, 4], false),
            profile(1000, 8, &[0], false),
        ]
    }

    #[test]
    fn residual_is_worth_the_best_instances_that_still_fit() {
        let partitions = MigPartitions::of(&profiles());
        let worths = partitions.worths(&[10, 15, 60, 100], 0);
        let worth = |taken: &[u8]| {
            let single = |start: &u8| Slices::range(*start, 1);
            let taken = taken.iter().map(single).fold(Slices::NONE, Slices::plus);
            worths[partitions.index(taken)]
        };
        assert_eq!(worth(&[]), 120, "two of 60");
        assert_eq!(worth(&[0]), 60 + 15 + 20, "three small ones beside one of 60");
        assert_eq!(worth(&[0, 4]), 15 + 40, "no place for one of 60, five for small ones");
        assert_eq!(worth(&[0, 1, 2, 3]), 60);
        assert_eq!(worth(&[0, 1, 2, 3, 6]), 15 + 10, "the last slice is of no use alone");
        let with_media = Slices::range(0, 1).plus(Slices::MEDIA);
        assert_eq!(
            worths[partitions.index(with_media)],
            60 + 30,
            "one has the media engines already"
        );
    }

    #[test]
    fn best_partition_has_the_reported_worth() {
        let partitions = MigPartitions::of(&profiles());
        for prices in [[0.125, 0.125, 0.5, 1.0], [0.2, 0.0, 0.1, 0.3], [0.1, 0.3, 0.6, 0.0]] {
            let (worth, counts) = partitions.best(&prices);
            let sum: f64 = counts.iter().zip(prices).map(|(count, price)| count * price).sum();
            assert!((worth - sum).abs() < 1e-9, "{worth} {counts:?}");
            assert!(counts[1] <= 1.0, "the media engines are there once");
        }
        assert_eq!(partitions.best(&[0.125, 0.0, 0.6, 1.0]).1, [0.0, 0.0, 2.0, 0.0]);
        assert_eq!(partitions.best(&[0.0; 4]), (0.0, vec![0.0; 4]));
    }

    #[test]
    fn without_profiles_nothing_is_left() {
        let partitions = MigPartitions::of(&[]);
        assert_eq!(partitions.worths::<i64>(&[], 0)[partitions.index(Slices::range(0, 3))], 0);
        assert_eq!(partitions.best(&[]), (0.0, Vec::new()));
    }
}
