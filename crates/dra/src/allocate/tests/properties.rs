//! Random clusters, allocated by the search and by enumeration.

use proptest::collection::vec;
use proptest::prelude::*;

use super::exhaustive::{Given, first_valid};
use super::fixtures::*;
use super::random::{build_claim, claim_spec, device_spec, world};
use crate::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_first_fit_is_what_looking_at_all_choices_finds(
        specs in vec(device_spec(), 1..6),
        earlier in vec(claim_spec(1), 0..4),
        pod in (claim_spec(2), vec(claim_spec(1), 0..2)),
    ) {
        let mut world = world(&specs);
        for (index, spec) in earlier.iter().enumerate() {
            let claim = build_claim(&format!("earlier-{index}"), spec);
            if world.allocate_on(&node("n1"), &[&claim]).is_ok() {
                world.give(claim);
            }
        }
        let first = build_claim("first", &pod.0);
        let others: Vec<Claim> = pod.1.iter().map(|spec| build_claim("other", spec)).collect();
        let claims: Vec<&Claim> = std::iter::once(&first).chain(&others).collect();
        let expected = first_valid(&world, &claims).map(|all| {
            let words = |given: &Given<'_>| format!("{}={}", given.request, given.device.name);
            all.iter().map(words).collect::<Vec<_>>().join(" ")
        });
        let expected = expected.unwrap_or_else(|| AllocateError::NoFit.to_string());
        prop_assert_eq!(world.try_claims(&claims), expected);

        let explanation = world.allocator().explain(&node("n1"), &claims);
        prop_assert_eq!(
            explanation.error.is_some(),
            world.allocate_on(&node("n1"), &claims).is_err()
        );
        let is_each_served = explanation.clash.is_none() && explanation.error.is_some();
        let is_one_short = explanation.requests.iter().any(|request| !request.is_enough());
        prop_assert!(!is_each_served || is_one_short, "a error has a reason");
    }

    #[test]
    fn order_of_slices_and_claims_changes_nothing(
        specs in vec(device_spec(), 1..6),
        earlier in vec(claim_spec(1), 0..4),
        wanted in claim_spec(2),
    ) {
        let mut world = world(&specs);
        for (index, spec) in earlier.iter().enumerate() {
            let claim = build_claim(&format!("earlier-{index}"), spec);
            if world.allocate_on(&node("n1"), &[&claim]).is_ok() {
                world.give(claim);
            }
        }
        let wanted = build_claim("wanted", &wanted);
        let before = world.try_claim(&wanted);
        let explained = world.allocator().explain(&node("n1"), &[&wanted]);
        world.slices.reverse();
        world.claims.reverse();
        prop_assert_eq!(world.try_claim(&wanted), before);
        prop_assert_eq!(world.allocator().explain(&node("n1"), &[&wanted]), explained);
    }
}
