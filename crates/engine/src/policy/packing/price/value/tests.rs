use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Share sizes in openb's default list, with the number of pods.
const OPENB: &[(u16, i64)] = &[
    (50, 7),
    (110, 24),
    (140, 1),
    (160, 74),
    (220, 62),
    (230, 140),
    (270, 4),
    (290, 1),
    (320, 328),
    (330, 7),
    (350, 6),
    (370, 47),
    (440, 2),
    (460, 128),
    (470, 750),
    (480, 19),
    (550, 72),
    (590, 75),
    (650, 253),
    (810, 1078),
];

fn of_shares(shares: impl IntoIterator<Item = (u16, i64)>) -> Values {
    Values::of(&Demands { shares: shares.into_iter().collect(), instances: Vec::new() })
}

/// Instances of one slice, of half a GPU and of a whole one, with these weights.
fn of_instances(weights: [i64; 3], shares: &[(u16, i64)]) -> Values {
    let profile = |milli, size, starts: &[u8]| MigProfile {
        name: format!("{milli}"),
        milli,
        memory_mib: 0,
        size,
        starts: starts.to_vec(),
        has_media: false,
    };
    let profiles =
        [profile(142, 1, &[0, 1, 2, 3, 4, 5, 6]), profile(428, 4, &[0, 4]), profile(1000, 8, &[0])];
    let instances = profiles.into_iter().zip(weights).collect();
    Values::of(&Demands { shares: shares.to_vec(), instances })
}

fn cut(values: &Values, slices: &[u8]) -> i64 {
    let taken = slices.iter().map(|slice| Slices::range(*slice, 1));
    values.at_partition(taken.fold(Slices::NONE, Slices::plus))
}

/// The highest price of any pattern, by enumeration.
fn highest(prices: &[(u16, i64)], left: u16) -> i64 {
    let Some(((size, price), rest)) = prices.split_first() else { return 0 };
    (0..=left / size)
        .map(|times| i64::from(times) * price + highest(rest, left - times * size))
        .max()
        .unwrap()
}

fn demands(least: u16) -> impl Strategy<Value = Vec<(u16, i64)>> {
    proptest::collection::vec((least..WHOLE, 1_i64..1000), 0..7)
}

#[test]
fn openb_sizes_have_the_prices_of_the_gpus_they_spoil() {
    let values = of_shares(OPENB.iter().copied());
    let prices: BTreeMap<u16, i64> = values.prices().iter().copied().collect();
    for (size, _) in OPENB {
        let expected = match size {
            810.. => 1_000_000,
            550..=650 => 666_666,
            460..=480 => 500_000,
            320..=440 => 333_333,
            230..=290 => 250_000,
            220 => 83_333,
            _ => 0,
        };
        let price = prices[size];
        assert!((price - expected).abs() <= 1, "{size}: {price}, expected {expected}");
    }
    assert_eq!(values.at(190), 0, "what 810 leaves is of use to hardly anybody");
    assert_eq!(values.at(530), 500_000);
    assert_eq!(values.at(1000), GPU_VALUE);
}

#[test]
fn without_shares_only_whole_gpus_have_a_value() {
    let values = of_shares([(1000, 5), (0, 3)]);
    assert_eq!((values.at(0), values.at(999), values.at(1000)), (0, 0, GPU_VALUE));
}

#[test]
fn sizes_that_fill_gpus_are_worth_their_length() {
    let values = of_shares([(250, 10), (500, 10)]);
    assert_eq!(values.prices(), [(250, 250_000), (500, 500_000)]);
    assert_eq!(values.at(750), 750_000);
}

#[test]
fn sizes_beyond_the_limit_are_rounded_up() {
    let values = of_shares((1..WHOLE).map(|size| (size, 1)));
    assert!(values.prices().len() <= MAX_SIZES);
    assert!(values.prices().iter().all(|(size, _)| size % 5 == 0 || *size == WHOLE - 1));
}

#[test]
fn instances_are_worth_what_can_be_had_with_them() {
    // Two large instances fill a GPU, and so do one large and four small ones.
    let values = of_instances([40, 60, 0], &[]);
    assert_eq!(cut(&values, &[0]), 500_000 + 3 * 125_000);
    assert_eq!(cut(&values, &[0, 4]), 5 * 125_000, "both places of the large ones are spoilt");
    assert_eq!(cut(&values, &[0, 1, 2, 3]), 500_000);
    assert_eq!(cut(&values, &[4, 5, 6]), 500_000);
    assert_eq!(cut(&values, &[0, 1, 2, 3, 4, 5, 6]), 0, "a slice that no instance can have");
    assert_eq!(values.at_partition(Slices::range(0, 8)), 0);
}

#[test]
fn a_gpu_is_cut_into_shares_or_into_instances() {
    let values = of_instances([40, 60, 0], &[(250, 50)]);
    // Neither makes the other cheaper, although 250 and 2 * 375 would fill a GPU.
    assert_eq!(values.prices(), [(250, 250_000)]);
    assert_eq!((values.at(750), cut(&values, &[0])), (750_000, 875_000));
    assert_eq!(cut(&of_instances([0; 3], &[(250, 50)]), &[0]), 0, "nobody asks for instances");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_cut_of_a_gpu_is_worth_more_than_a_gpu(demands in demands(90)) {
        let values = of_shares(demands);
        prop_assert!(highest(values.prices(), WHOLE) <= GPU_VALUE);
    }

    #[test]
    fn a_level_is_worth_its_best_cut(demands in demands(120), level in 0_u16..WHOLE) {
        let values = of_shares(demands);
        prop_assert_eq!(values.at(level), highest(values.prices(), level));
    }

    #[test]
    fn values_grow_with_what_is_left(demands in demands(1)) {
        let values = of_shares(demands);
        for level in 0..WHOLE {
            prop_assert!(values.at(level) <= values.at(level + 1));
        }
    }

    /// Any prices that satisfy the constraints are a lower bound; the lengths themselves are such
    /// prices.
    #[test]
    fn prices_are_worth_at_least_as_much_as_lengths(demands in demands(50)) {
        let values = of_shares(demands.iter().copied());
        let prices: BTreeMap<u16, i64> = values.prices().iter().copied().collect();
        let sum = |worth: &dyn Fn(u16) -> i64| -> i64 {
            demands.iter().map(|(size, weight)| worth(*size) * weight).sum()
        };
        let weights: i64 = demands.iter().map(|(_, weight)| weight).sum();
        // A millionth is lost for each pod in rounding.
        let by_length = sum(&|size| i64::from(size) * 1000);
        prop_assert!(sum(&|size| prices[&size]) + 2 * weights >= by_length);
    }
}
