use std::collections::{BTreeMap, VecDeque};

use super::*;
use crate::World;
use crate::node::NodeSpec;
use crate::packing::price::PricePolicy;
use crate::preemption::fixtures::{share, whole, world};
use crate::topology::Level;

/// Where the policy puts a pod on an empty part of the world, with and without domains.
fn choose(world: &World, shape: &Shape) -> [u32; 2] {
    let shape = Arc::new(shape.clone());
    let mut policy = PricePolicy::learned();
    let alone = policy.choose(&world.cluster, &shape).unwrap().placement.node;
    let (packing, domains) = (&mut PricePolicy::learned(), &mut UnusedNodes::default());
    let (topology, forbidden) = (&world.topology, &NodeSet::new());
    let mut packing = InDomains { packing, domains, topology, forbidden };
    [alone.0, packing.choose(&world.cluster, &shape).unwrap().placement.node.0]
}

fn occupy(world: &mut World, node: u32, shape: &Shape) {
    let placement = pick::default_placement(&world.cluster, NodeId(node), shape).unwrap();
    world.cluster.place(&shape.resources, &placement).unwrap();
}

#[test]
fn a_pod_opens_a_node_of_a_broken_rack() {
    let mut world = world(&[3, 3, 3], 8);
    occupy(&mut world, 7, &whole(8));
    assert_eq!(choose(&world, &whole(1)), [0, 6]);
    // Racks without unused nodes have none to offer.
    for node in [6, 8] {
        occupy(&mut world, node, &whole(8));
    }
    assert_eq!(choose(&world, &whole(1)), [0, 0]);
    occupy(&mut world, 4, &whole(8));
    assert_eq!(choose(&world, &whole(1)), [0, 3]);
}

#[test]
fn more_nodes_than_are_compared_are_searched_by_domain() {
    let mut world = world(&[40, 4, 4], 8);
    occupy(&mut world, 45, &whole(8));
    assert_eq!(choose(&world, &whole(1)), [0, 44]);
}

#[test]
fn a_new_rack_that_sorts_first_is_known_at_once() {
    let mut world = world(&[2, 2, 2], 8);
    let racks = ["r0", "r0", "r1", "r1", "r2", "r2"];
    occupy(&mut world, 5, &whole(8));
    let shape = Arc::new(whole(1));
    let (mut policy, mut domains) = (PricePolicy::learned(), UnusedNodes::default());
    let mut choose = |world: &World| {
        let (packing, domains, topology) = (&mut policy, &mut domains, &world.topology);
        let forbidden = &NodeSet::new();
        let mut packing = InDomains { packing, domains, topology, forbidden };
        packing.choose(&world.cluster, &shape).unwrap().placement.node
    };
    assert_eq!(choose(&world), NodeId(4));
    let class = world.cluster.class(NodeId(0)).clone();
    let labels = [("rack".to_owned(), "a".to_owned())].into();
    world.cluster.add_node(&NodeSpec { name: "new".into(), class, labels }).unwrap();
    let labels = racks.into_iter().chain(["a"]);
    let labels: Vec<_> = labels.map(|rack| [("rack".to_owned(), rack.to_owned())].into()).collect();
    let level = Level { name: "rack".into(), label: "rack".to_owned(), is_unique: true };
    world.topology = Topology::from_labels(&[level], &labels).unwrap();
    occupy(&mut world, 6, &whole(8));
    for node in [4, 0, 1, 2] {
        assert_eq!(choose(&world), NodeId(node));
        assert_eq!(super::tests::choose(&world, &shape)[1], node, "of fresh caches");
        occupy(&mut world, node, &whole(8));
    }
}

/// Hundredths of racks, of 16 racks of 8 nodes, that stay wholly unused, in the mean over a long churn of single pods.
/// Names of nodes follow the racks or not.
fn whole_racks(is_by_domain: bool, is_named_by_rack: bool) -> u32 {
    let mut world = world(&[8; 16], 8);
    if !is_named_by_rack {
        let labels: Vec<BTreeMap<String, String>> =
            (0..128).map(|n| [("rack".to_owned(), format!("r{}", n % 16))].into()).collect();
        let level = Level { name: "rack".into(), label: "rack".to_owned(), is_unique: true };
        world.topology = Topology::from_labels(&[level], &labels).unwrap();
    }
    let (mut policy, mut domains) = (PricePolicy::learned(), UnusedNodes::default());
    let shapes = [whole(1), whole(2), whole(4), whole(8), share(500)].map(Arc::new);
    let mut running: VecDeque<(Arc<Shape>, Placement)> = VecDeque::new();
    let (mut state, mut sum) = (7_u32, 0);
    let mut next = |bound: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as usize % bound
    };
    for number in 0..6_000 {
        let shape = &shapes[next(shapes.len())];
        policy.arrived(shape);
        let choice = if is_by_domain {
            let topology = &world.topology;
            let (packing, domains, forbidden) = (&mut policy, &mut domains, &NodeSet::new());
            InDomains { packing, domains, topology, forbidden }.choose(&world.cluster, shape)
        } else {
            policy.choose(&world.cluster, shape)
        };
        let placement = choice.unwrap().placement;
        world.cluster.place(&shape.resources, &placement).unwrap();
        running.push_back((Arc::clone(shape), placement));
        if running.len() > 150 {
            let (shape, placement) = running.swap_remove_back(next(running.len())).unwrap();
            world.cluster.release(&shape.resources, &placement).unwrap();
            policy.released(&shape, &placement);
        }
        if number >= 2_000 {
            let is_unused = |node: &NodeId| world.cluster.idle_gpus(*node) == 8;
            let racks = world.topology.at(crate::topology::LevelId(1));
            let is_whole = |id| world.topology.nodes(id).iter().all(is_unused);
            sum += u32::try_from(racks.filter(|(id, _)| is_whole(*id)).count()).unwrap();
        }
    }
    sum * 100 / 4_000
}

#[test]
fn racks_stay_whole_while_pods_come_and_go() {
    let named_by_rack = [true, false].map(|is_by_domain| whole_racks(is_by_domain, true));
    let named_otherwise = [true, false].map(|is_by_domain| whole_racks(is_by_domain, false));
    println!("names that follow racks: {named_by_rack:?}; other names: {named_otherwise:?}");
    // Filling the lowest names is filling the first racks, if names follow racks.
    assert!(named_by_rack[0] + 50 > named_by_rack[1], "{named_by_rack:?}");
    assert!(named_otherwise[0] > named_otherwise[1] + 500, "{named_otherwise:?}");
}
