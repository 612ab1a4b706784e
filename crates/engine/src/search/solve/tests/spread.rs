//! Placement of members without constraints.

use super::fixtures::*;

#[test]
fn gang_prefers_the_fullest_node_that_holds_all_of_it() {
    let mut world =
        world(&[("a", "b1/r1", 8), ("b", "b1/r1", 5), ("c", "b1/r2", 4), ("d", "b2/r1", 3)]);
    let plan = solve(&mut world, &gang(gpus(1), 4)).unwrap();
    assert_eq!(counts(&world, &plan), [("c".to_owned(), 4)].into());
    assert_eq!(plan.cost.of(crate::CostTerm::Hops), 0);
}

#[test]
fn gang_takes_the_rack_it_fills_best_and_keeps_the_free_rack_whole() {
    let mut world = world(&[
        ("a", "b1/r1", 8),
        ("b", "b1/r1", 8),
        ("c", "b1/r1", 8),
        ("d", "b1/r2", 8),
        ("e", "b1/r2", 8),
        ("f", "b2/r1", 8),
        ("g", "b2/r1", 2),
    ]);
    let plan = solve(&mut world, &gang(gpus(8), 2)).unwrap();
    assert_eq!(names(&world, &plan), ["d", "e"]);
}

#[test]
fn fewest_racks_are_used_and_the_last_fits_best() {
    let mut world = world(&[
        ("a1", "b1/r1", 8),
        ("a2", "b1/r1", 8),
        ("a3", "b1/r1", 8),
        ("a4", "b1/r1", 8),
        ("b1", "b1/r2", 8),
        ("b2", "b1/r2", 8),
        ("b3", "b1/r2", 8),
        ("c1", "b1/r3", 8),
        ("d1", "b1/r4", 8),
        ("d2", "b1/r4", 8),
    ]);
    let plan = solve(&mut world, &gang(gpus(8), 6)).unwrap();
    assert_eq!(names(&world, &plan), ["a1", "a2", "a3", "a4", "d1", "d2"]);
}

#[test]
fn ranks_follow_topology_and_are_contiguous_per_node() {
    let mut world =
        world(&[("z", "b1/r1", 2), ("m", "b1/r2", 2), ("a", "b2/r1", 2), ("q", "b1/r1", 2)]);
    let plan = solve(&mut world, &gang(gpus(1), 8)).unwrap();
    assert_eq!(names(&world, &plan), ["q", "q", "z", "z", "m", "m", "a", "a"]);
    // Four nodes, three racks and two blocks are entered, two hops each.
    assert_eq!(plan.cost.of(crate::CostTerm::Hops), 2 * (4 + 3 + 2));
}

#[test]
fn used_nodes_are_preferred_if_hops_stay_equal() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 4), ("c", "b1/r1", 4)]);
    let plan = solve(&mut world, &gang(gpus(4), 1)).unwrap();
    assert_eq!(names(&world, &plan), ["b"]);
    // One node has no hops, which is worth using the unused one.
    let plan = solve(&mut world, &gang(gpus(4), 2)).unwrap();
    assert_eq!(names(&world, &plan), ["a", "a"]);
    let runner_up = plan.runner_up.unwrap();
    assert_eq!(runner_up.place, "b1/r1: b, c");
    assert_eq!(runner_up.worse_in, Some(crate::CostTerm::Hops));
}

#[test]
fn few_nodes_in_two_racks_are_nearer_than_many_in_one() {
    let mut nodes = vec![("x", "b1/r2", 4), ("y", "b1/r3", 4)];
    let crumbs = ["a", "b", "c", "d", "e", "f", "g", "h"];
    nodes.extend(crumbs.map(|name| (name, "b1/r1", 1)));
    let mut world = world(&nodes);
    let plan = solve(&mut world, &gang(gpus(1), 8)).unwrap();
    assert_eq!(names(&world, &plan), ["x", "x", "x", "x", "y", "y", "y", "y"]);
}

#[test]
fn the_ring_of_few_members_is_the_shortest_there_is() {
    // Taking the largest rack or the largest nodes first would enter five nodes.
    let mut world = world(&[
        ("a", "b0/r0", 8),
        ("b", "b1/r0", 5),
        ("c", "b1/r2", 3),
        ("d", "b1/r0", 4),
        ("e", "b1/r0", 4),
        ("f", "b0/r2", 7),
    ]);
    let plan = solve(&mut world, &gang(gpus(1), 21)).unwrap();
    assert_eq!(plan.cost.of(crate::CostTerm::Hops), 2 * (4 + 2 + 2));
}

#[test]
fn nodes_without_a_rack_serve_where_no_rack_is_required() {
    let mut world = world(&[("a", "b1/r1", 2), ("b", "b1", 8), ("c", "", 8)]);
    let mut gang = gang(gpus(8), 1);
    assert_eq!(places(&mut world, &gang), ["b"]);
    gang.profile.topology = required(RACK);
    assert!(solve(&mut world, &gang).is_err());
}

#[test]
fn forbidden_nodes_get_no_member() {
    let mut world = world(&[("a", "b1/r1", 8), ("b", "b1/r1", 8), ("c", "b2/r1", 8)]);
    let [a, c] = ["a", "c"].map(|name| world.cluster.node_named(name).unwrap());
    let settled = Settled { forbidden: [a].into(), ..Settled::default() };
    let plan = solve_with(&mut world, &gang(gpus(8), 2), &settled).unwrap();
    assert_eq!(names(&world, &plan), ["b", "c"]);
    let settled = Settled { forbidden: [a, c].into(), ..Settled::default() };
    assert!(solve_with(&mut world, &gang(gpus(8), 2), &settled).is_err());
    assert_eq!(places_with(&mut world, &gang(gpus(8), 1), &settled), ["b"]);
}

#[test]
fn the_order_in_which_nodes_were_found_decides_nothing() {
    let nodes = [
        ("a", "b1/r1", 3),
        ("b", "b1/r1", 5),
        ("c", "b1/r2", 8),
        ("d", "b2/r1", 2),
        ("e", "b2/r2", 7),
        ("f", "b2", 6),
        ("g", "", 8),
    ];
    let mut turned = nodes;
    turned.reverse();
    for count in [3, 9, 20, 39] {
        let plan = |nodes: &[_]| {
            let mut world = world(nodes);
            let plan = solve(&mut world, &gang(gpus(1), count)).unwrap();
            (names(&world, &plan), plan)
        };
        assert_eq!(plan(&nodes), plan(&turned));
    }
}
