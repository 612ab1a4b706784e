//! Classes that appear and disappear while the policy runs.

use super::*;
use crate::node::{FeatureMask, NodeId};

/// Applies a change to the class of one node; all other nodes stay equal.
fn turn(cluster: &mut Cluster, node: u32, change: impl FnOnce(&mut NodeClass)) {
    let mut class = cluster.class(NodeId(node)).clone();
    change(&mut class);
    cluster.set_class(NodeId(node), &class).unwrap();
}

#[test]
fn a_new_class_leaves_what_is_kept_of_the_others() {
    let mut cluster = cluster(0..30);
    let arrivals = arrivals(60);
    let mut policy = PricePolicy::learned();
    for shape in &arrivals[..50] {
        policy.arrived(shape);
        let choice = policy.choose(&cluster, shape).unwrap();
        cluster.place(&shape.resources, &choice.placement).unwrap();
    }
    policy.choose(&cluster, &arrivals[0]).unwrap();
    let index = |policy: &PricePolicy| {
        let score_cache = policy.score_cache.as_ref().unwrap();
        (score_cache.decisions(), score_cache.is_kept(&arrivals[0]))
    };
    let (before, _) = index(&policy);
    // A price, a hazard, a taint, a little less memory.
    turn(&mut cluster, 0, |class| class.cents_per_hour = 7);
    turn(&mut cluster, 1, |class| class.hazard_ppm = 3);
    turn(&mut cluster, 2, |class| class.taints = FeatureMask(1));
    turn(&mut cluster, 3, |class| class.capacity.memory_mib -= 500);
    policy.choose(&cluster, &arrivals[1]).unwrap();
    assert_eq!(index(&policy), (before + 1, true), "the books are the same");
}

#[test]
fn larger_node_adds_an_expected_whole_node_pod_at_once() {
    let mut cluster = cluster([0, 3, 6]);
    let small = shape(1_000, 1, 500);
    let mut policy = PricePolicy::learned();
    policy.arrived(&small);
    policy.choose(&cluster, &small).unwrap();
    let sizes = |policy: &PricePolicy| policy.inputs.as_ref().unwrap().sizes.len();
    assert_eq!(sizes(&policy), 1);
    turn(&mut cluster, 1, |class| class.capacity.cpu_milli *= 2);
    policy.choose(&cluster, &small).unwrap();
    assert_eq!(sizes(&policy), 2);
}

#[test]
fn classes_seen_one_by_one_are_scored_as_if_known_before() {
    let arrivals = arrivals(120);
    let counts = || DemandStats::of(arrivals.iter().map(|shape| (Arc::clone(shape), 1)));
    let mut cluster = cluster(0..12);
    let mut policy = PricePolicy::known(counts());
    for (number, shape) in (0_u32..).zip(&arrivals) {
        turn(&mut cluster, number % 12, |class| {
            class.features = FeatureMask(u64::from(number % 5));
            class.taints = FeatureMask(u64::from(number % 4 == 3));
            class.capacity.cpu_milli += 10;
        });
        let choice = policy.choose(&cluster, shape);
        assert_eq!(choice, PricePolicy::known(counts()).choose(&cluster, shape));
        let Some(choice) = choice else { continue };
        cluster.place(&shape.resources, &choice.placement).unwrap();
    }
}

#[test]
fn the_classes_that_are_remembered_are_bounded() {
    let mut cluster = cluster([0, 1, 2]);
    let small = shape(1_000, 1, 500);
    let mut policy = PricePolicy::known(DemandStats::of([(Arc::clone(&small), 1)]));
    let mut most = 0;
    for number in 0..3_000 {
        turn(&mut cluster, 1, |class| class.features = FeatureMask(number));
        policy.choose(&cluster, &small).unwrap();
        most = most.max(policy.score_cache.as_ref().unwrap().class_model_count());
    }
    assert!((1000..=1024).contains(&most), "{most}");
}
