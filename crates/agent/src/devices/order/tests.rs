use super::*;
use crate::testing::mig;

fn starts(profiles: &[MigProfile], name: &str) -> Vec<u32> {
    let profile = profiles.iter().find(|profile| profile.name == name).unwrap();
    least_harm(profiles, profile).into_iter().map(|placement| placement.start).collect()
}

fn index(profiles: &[MigProfile], name: &str) -> usize {
    profiles.iter().position(|profile| profile.name == name).unwrap()
}

#[test]
fn small_ones_begin_where_no_large_one_can_be() {
    let profiles = mig::profiles();
    // Slice 7 takes no 1g; 6 is in no place of a 2g.
    assert_eq!(starts(&profiles, "1g.10gb"), [6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(starts(&profiles, "1g.20gb"), [6, 4, 2, 0]);
    assert_eq!(starts(&profiles, "2g.20gb"), [4, 2, 0]);
    // A 4g can only be at 0.
    assert_eq!(starts(&profiles, "3g.40gb"), [4, 0]);
    assert_eq!(starts(&profiles, "7g.80gb"), [0]);
}

#[test]
fn the_rule_follows_the_table_and_not_the_direction() {
    // A part on which the large profile can only be at the end.
    let mut profiles = mig::profiles();
    let four = index(&profiles, "4g.40gb");
    profiles[four].placements[0].start = 4;
    assert_eq!(starts(&profiles, "3g.40gb"), [0, 4]);
    assert_eq!(starts(&profiles, "1g.10gb")[..4], [3, 2, 1, 0]);
}

#[test]
fn placements_are_listed_once_and_equal_sizes_rank_by_engines() {
    let profiles = mig::profiles();
    for profile in &profiles {
        let mut listed = least_harm(&profiles, profile);
        listed.sort();
        assert_eq!(listed, profile.placements, "{}", profile.name);
    }
    let rank_of = |name: &str| rank(&profiles[index(&profiles, name)]);
    assert!(rank_of("1g.10gb") < rank_of("1g.10gb+me"));
    assert!(rank_of("1g.10gb+me") < rank_of("1g.20gb"));
    assert!(rank_of("1g.20gb") < rank_of("2g.20gb"));
    assert!(rank_of("3g.40gb") < rank_of("4g.40gb"));
}

#[test]
fn one_small_instance_by_name_costs_the_4g_that_ours_leaves() {
    let profiles = mig::profiles();
    let sequence = [Step::Arrive(index(&profiles, "1g.10gb"))];
    let fits = |order| simulate(&profiles, 1, order, &sequence).fits;
    let four = index(&profiles, "4g.40gb");
    assert_eq!(fits(ListOrder::LeastHarm)[four], 1);
    assert_eq!(fits(ListOrder::Relisted)[four], 1);
    assert_eq!(fits(ListOrder::Name)[four], 0);
}

#[test]
fn what_departs_is_free_again_and_what_got_nothing_departs_in_vain() {
    let profiles = mig::profiles();
    let seven = index(&profiles, "7g.80gb");
    let sequence = [
        Step::Arrive(seven),
        Step::Arrive(seven),
        Step::Depart(1),
        Step::Depart(0),
        Step::Arrive(seven),
        Step::Depart(9),
    ];
    let outcome = simulate(&profiles, 1, ListOrder::LeastHarm, &sequence);
    assert_eq!((outcome.steps, outcome.asked, outcome.given), (6, 3, 2));
    assert_eq!(outcome.fits[seven], 1, "after the first departure only");
}

#[test]
fn engines_bound_what_fits_beside_memory_slices() {
    let profiles = mig::profiles();
    let media = index(&profiles, "1g.10gb+me");
    let outcome = simulate(&profiles, 2, ListOrder::Name, &[Step::Arrive(media); 3]);
    assert_eq!(outcome.given, 2, "one a GPU");
}

#[test]
fn mig_fills_one_gpu_before_the_next_from_the_last() {
    let profiles = mig::profiles();
    let (one, seven) = (index(&profiles, "1g.10gb"), index(&profiles, "7g.80gb"));
    let outcome = simulate(&profiles, 2, ListOrder::LeastHarm, &[Step::Arrive(one); 8]);
    // Seven fit the last GPU; the eighth begins the first.
    assert_eq!((outcome.given, outcome.fits[seven]), (8, 7));
}

#[test]
fn names_order_gpus_as_text() {
    let profiles = mig::profiles();
    let seven = index(&profiles, "7g.80gb");
    let outcome = simulate(&profiles, 12, ListOrder::Name, &[Step::Arrive(seven); 13]);
    assert_eq!((outcome.asked, outcome.given), (13, 12));
}
