use super::fixtures::*;
use crate::*;

const NO: &str = "the node's free devices do not serve all claims";

/// A GPU with two memory slices, whole or in halves.
fn gpu() -> World {
    let whole = drawing(device_with("whole", &[("kind", "full")]), "g", &[("slices", 2)]);
    let half = |name| drawing(device_with(name, &[("kind", "mig")]), "g", &[("slices", 1)]);
    let devices = vec![whole, half("half-0"), half("half-1"), half("half-2")];
    World::new(partitionable(vec![counters("g", &[("slices", 2)])], devices))
}

fn kind(name: &str, kind: &str) -> Claim {
    one(name, ask_where(1, "kind", kind))
}

#[test]
fn whole_and_parts_exclude_one_another() {
    let mut world = gpu();
    world.give(kind("c1", "mig"));
    assert_eq!(world.try_claim(&kind("c2", "full")), NO);
    assert_eq!(world.try_claim(&kind("c2", "mig")), "r=half-1");
    world.give(kind("c2", "mig"));
    assert_eq!(world.try_claim(&kind("c3", "mig")), NO);
    world.claims.clear();
    world.give(kind("c1", "full"));
    assert_eq!(world.try_claim(&kind("c2", "mig")), NO);
}

#[test]
fn what_one_pod_takes_counts_at_once() {
    let world = gpu();
    assert_eq!(world.try_claims(&[&kind("c1", "mig"), &kind("c2", "mig")]), "r=half-0 r=half-1");
    assert_eq!(world.try_claims(&[&kind("c1", "mig"), &kind("c2", "full")]), NO);
    assert_eq!(world.try_claim(&one("c1", ask(2))), "r=half-0 r=half-1");
    assert_eq!(world.try_claim(&one("c1", ask(3))), NO);
}

#[test]
fn a_rejected_device_gives_its_counters_back() {
    let taint = DeviceTaint {
        key: "example.com/sick".to_owned(),
        value: String::new(),
        effect: TaintEffect::NoSchedule,
    };
    let mut world = gpu();
    world.slices[1].devices[1].taints.push(taint);
    assert_eq!(world.try_claim(&one("c1", ask(2))), "r=half-1 r=half-2");
}

#[test]
fn a_pool_with_less_than_nothing_left_gives_nothing() {
    let mut world = gpu();
    let mut claim = kind("c1", "full");
    let result = |device: &str| AllocationResult {
        request: "r".to_owned(),
        driver: DRIVER.to_owned(),
        pool: "n1".to_owned(),
        device: device.to_owned(),
        ..AllocationResult::default()
    };
    let results = vec![result("whole"), result("half-0")];
    claim.allocation = Some(Allocation { results, nodes: None });
    world.claims.push(claim);
    let other = drawing(device("other"), "h", &[("slices", 1)]);
    world.slices[1].devices.push(other);
    world.slices[0].counters.push(counters("h", &[("slices", 1)]));
    assert_eq!(world.try_claim(&one("c2", ask(1))), NO);
    world.slices[1].devices.push(device("plain"));
    assert_eq!(world.try_claim(&one("c2", ask(1))), "r=plain", "who draws nothing is served");
}

#[test]
fn devices_on_other_nodes_draw_from_the_same_counters() {
    let mut slices = gpu().slices;
    let mut far = slices[1].clone();
    far.devices = vec![drawing(device("far"), "g", &[("slices", 1)])];
    (far.name, far.nodes) = ("n2-1".to_owned(), NodeScope::Node("n2".to_owned()));
    slices.push(far);
    for slice in &mut slices {
        slice.slice_count = 3;
    }
    let mut world = World::new(slices);
    let mut claim = gpus("c1", 1);
    claim.allocation = Some(world.allocate_on(&node("n2"), &[&claim]).unwrap().remove(0));
    world.claims.push(claim);
    assert_eq!(world.try_claim(&kind("c2", "full")), NO);
    assert_eq!(world.try_claim(&kind("c2", "mig")), "r=half-0");
}

#[test]
fn pools_of_one_name_but_other_drivers_have_counters_of_their_own() {
    let mut world = gpu();
    let mut others = gpu().slices;
    for slice in &mut others {
        slice.driver = "a.example".to_owned();
        slice.name = format!("other-{}", slice.name);
    }
    let mut claim = kind("c1", "full");
    let result = AllocationResult {
        request: "r".to_owned(),
        driver: "a.example".to_owned(),
        pool: "n1".to_owned(),
        device: "whole".to_owned(),
        ..AllocationResult::default()
    };
    claim.allocation = Some(Allocation { results: vec![result], nodes: None });
    world.slices.extend(others);
    world.claims.push(claim);
    assert_eq!(world.try_claim(&kind("c2", "full")), "r=whole");
}

#[test]
fn a_shared_device_draws_once_for_all_its_parts() {
    let whole = drawing(shared_gpu("whole", 40), "g", &[("slices", 2)]);
    let half = drawing(device_with("half", &[("kind", "mig")]), "g", &[("slices", 1)]);
    let slices = partitionable(vec![counters("g", &[("slices", 2)])], vec![whole, half]);
    let mut world = World::new(slices);
    let part = |name| one(name, ask_part("10Gi"));
    assert_eq!(world.try_claims(&[&part("c1"), &part("c2")]), "r=whole r=whole");
    world.give(part("c1"));
    assert_eq!(world.try_claim(&part("c2")), "r=whole");
    assert_eq!(world.try_claim(&gpus("c2", 1)), NO, "all of it is gone, and so is each half");
    world.claims.clear();
    let mut mig = gpus("c1", 1);
    let result = AllocationResult {
        request: "r".to_owned(),
        driver: DRIVER.to_owned(),
        pool: "n1".to_owned(),
        device: "half".to_owned(),
        ..AllocationResult::default()
    };
    mig.allocation = Some(Allocation { results: vec![result], nodes: None });
    world.claims.push(mig);
    assert_eq!(world.try_claim(&part("c2")), NO);
}

#[test]
fn without_the_feature_devices_that_draw_are_out() {
    let mut world = gpu();
    world.features = world.features.without(Feature::PartitionableDevices);
    // Slices with counters are then invisible, and the other slice is the whole pool.
    world.slices[1].slice_count = 1;
    world.slices[1].devices.push(device("plain"));
    assert_eq!(world.try_claim(&gpus("c1", 1)), "r=plain");
}
