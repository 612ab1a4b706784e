//! The gap between the search and the optimum.

use proptest::prelude::*;

use super::exact::fewest_hops;
use super::fixtures::*;
use crate::solve::{NodeSet, Request};
use crate::topology::LevelId;

const PATHS: [&str; 7] = ["b1/r1", "b1/r1", "b1/r2", "b2/r1", "b2/r2", "b2", ""];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn no_plan_has_fewer_hops_than_the_exact_search_and_as_many_members(
        nodes in prop::collection::vec((0..PATHS.len(), 0_u16..=8), 1..=8),
        count in 1_u32..=12,
        spare in 0_u32..=2,
        level in 0_u8..=2,
        size in 0_u32..=2,
    ) {
        let names: Vec<String> = (0..nodes.len()).map(|number| format!("n{number}")).collect();
        let nodes: Vec<_> = nodes
            .iter()
            .zip(&names)
            .map(|((path, free), name)| (&**name, PATHS[*path], *free))
            .collect();
        let mut world = world(&nodes);
        let size = size.max(1);
        let mut gang = gang(gpus(1), count * size);
        gang.groups[0].min = count.saturating_sub(spare) * size;
        gang.profile.topology.required = (level > 0).then_some(LevelId(level));
        if size > 1 {
            segments(&mut gang, size, RACK);
        }
        let forbidden = NodeSet::new();
        let request = Request { gang: &gang, pinned: &[], forbidden: &forbidden };
        let exact = fewest_hops(&world, &request);
        match solve(&mut world, &gang) {
            Ok(plan) if plan.placements.is_empty() => prop_assert!(exact.is_none()),
            Ok(plan) => {
                let exact = exact.unwrap();
                prop_assert_eq!(plan.placements.len(), exact.members as usize);
                let hops = plan.cost.of(crate::CostTerm::Hops);
                prop_assert!(hops >= exact.hops);
                // In the whole cluster all areas are parts of the last one.
                if level == 0 && size == 1 && spare == 0 {
                    prop_assert_eq!(hops, exact.hops);
                }
            }
            Err(_) => prop_assert_eq!(exact, None),
        }
    }
}

/// Three slots outside racks hold no segment: the block with fewer slots fits more members.
#[test]
fn an_elastic_gang_goes_where_most_whole_segments_are() {
    let nodes = [("a", "b1/r1", 6), ("b", "b2/r1", 6), ("c", "b2", 3), ("d", "b1/r2", 2)];
    let mut world = world(&nodes);
    let mut gang = gang(gpus(1), 10);
    gang.groups[0].min = 6;
    gang.profile.topology = required(BLOCK);
    segments(&mut gang, 2, RACK);
    let plan = solve(&mut world, &gang).unwrap();
    assert_eq!(names(&world, &plan), ["a", "a", "a", "a", "a", "a", "d", "d"]);
}
