use super::fixtures::*;
use crate::*;

const NO: &str = "the node's free devices do not serve all claims";

#[test]
fn all_means_each_that_matches_and_at_least_one() {
    let other = device_with("other", &[("kind", "mig")]);
    let full = |name| device_with(name, &[("kind", "full")]);
    let world = World::new(vec![slice("n1", vec![full("a"), other, full("b")])]);
    let all = one("c1", DeviceRequest { count: Count::All, ..ask_where(1, "kind", "full") });
    assert_eq!(world.try_claim(&all), "r=a r=b");
    let none = one("c1", DeviceRequest { count: Count::All, ..ask_where(1, "kind", "tpu") });
    assert_eq!(world.try_claim(&none), NO);
}

#[test]
fn all_fails_when_one_of_them_is_taken() {
    let mut world = World::new(vec![slice("n1", devices(&["a", "b"]))]);
    world.give(gpus("c1", 1));
    assert_eq!(world.try_claim(&one("c2", ask_all())), NO);
    assert_eq!(world.try_claim(&one("c2", admin(ask_all()))), "r=a r=b");
}

#[test]
fn all_waits_for_pools_to_be_complete() {
    let mut part = slice("n1", devices(&["x"]));
    (part.pool, part.slice_count) = ("second".to_owned(), 2);
    let world = World::new(vec![slice("n1", devices(&["a"])), part]);
    let error = world.allocate_on(&node("n1"), &[&one("c1", ask_all())]).unwrap_err();
    let message = "claim team/c1, request r: it asks for all devices, but pool gpu.example/second is \
                being updated";
    assert_eq!(error.to_string(), message);
    assert!(!error.is_node_specific());
    assert_eq!(world.try_claim(&gpus("c1", 1)), "r=a", "a number is served from other pools");
}

#[test]
fn all_does_not_bear_an_invalid_pool() {
    let world = World::new(vec![slice("n1", devices(&["a", "a"]))]);
    let message = world.try_claim(&one("c1", ask_all()));
    assert!(
        message.ends_with("pool gpu.example/n1 is invalid: two devices are named a"),
        "{message}"
    );
}

#[test]
fn all_that_a_constraint_breaks_is_an_error_of_the_claim() {
    let rack = |name, rack| device_with(name, &[("rack", rack)]);
    let world = World::new(vec![slice("n1", vec![rack("a", "1"), rack("b", "2")])]);
    let mut all = one("c1", ask_all());
    all.constraints.push(matching("rack", &[]));
    let error = world.allocate_on(&node("n1"), &[&all]).unwrap_err();
    let message = "claim team/c1, request r: it asks for all devices, but with gpu.example/n1/b they \
                do not agree in gpu.example/rack";
    assert_eq!(error.to_string(), message);
    assert!(!error.is_node_specific());
}

#[test]
fn all_leaves_out_devices_with_too_little_capacity() {
    let mut world = World::new(vec![slice("n1", vec![shared_gpu("a", 40), shared_gpu("b", 80)])]);
    let all = one("c1", DeviceRequest { count: Count::All, ..ask_part("50Gi") });
    assert_eq!(world.try_claim(&all), "r=b");
    world.give(one("c0", ask_part("10Gi")));
    let all = one("c1", DeviceRequest { count: Count::All, ..ask_part("30Gi") });
    assert_eq!(world.try_claim(&all), "r=a r=b");
    let all = one("c1", DeviceRequest { count: Count::All, ..ask_part("35Gi") });
    assert_eq!(world.try_claim(&all), "r=b");
}

#[test]
fn another_nodes_unfinished_counters_stand_in_the_way_of_all() {
    let mut far = partitionable(vec![counters("set", &[("slices", 1)])], Vec::new());
    far.truncate(1);
    (far[0].nodes, far[0].pool) = (NodeScope::Node("n2".to_owned()), "n2".to_owned());
    let world = World::new(vec![slice("n1", devices(&["a"])), far.remove(0)]);
    let message = world.try_claim(&one("c1", ask_all()));
    assert!(message.ends_with("pool gpu.example/n2 is being updated"), "{message}");
    assert_eq!(world.try_claim(&gpus("c1", 1)), "r=a");
}
