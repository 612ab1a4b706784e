use super::fixtures::*;
use crate::*;

const NO: &str = "the node's free devices do not serve all claims";

/// One device with a capacity `memory` of 10 units, and the amount that a claim for `asked` takes.
fn taken(policy: impl Into<Option<RequestPolicy>>, asked: Option<&str>) -> Option<String> {
    let memory = Capacity { value: q("10"), policy: policy.into() };
    let capacity = [("memory".to_owned(), memory)].into();
    let gpu = Device { allow_multiple: true, capacity, ..device("a") };
    let world = World::new(vec![slice("n1", vec![gpu])]);
    let wanted = one("c1", asked.map_or_else(|| ask(1), ask_part));
    let allocation = world.allocate_on(&node("n1"), &[&wanted]).ok()?.remove(0);
    Some(allocation.results[0].consumed["memory"].to_string())
}

fn policy(default: &str, allowed: AllowedAmounts) -> RequestPolicy {
    RequestPolicy { default: Some(q(default)), allowed }
}

fn range(min: &str, max: Option<&str>, step: Option<&str>) -> AllowedAmounts {
    AllowedAmounts::Range { min: q(min), max: max.map(q), step: step.map(q) }
}

#[test]
fn shares_fill_a_device_to_its_size_and_no_further() {
    let mut world = World::new(vec![slice("n1", vec![shared_gpu("a", 40), shared_gpu("b", 40)])]);
    let first = world.give(one("c1", ask_part("30Gi"))).results.remove(0);
    assert_eq!((first.device.as_str(), first.share_id.as_deref()), ("a", Some("share-1")));
    assert_eq!(first.consumed["memory"].to_string(), "30Gi");
    let second = world.give(one("c2", ask_part("20Gi"))).results.remove(0);
    assert_eq!((second.device.as_str(), second.share_id.as_deref()), ("b", Some("share-2")));
    assert_eq!(world.try_claim(&one("c3", ask_part("10Gi"))), "r=a");
    assert_eq!(world.try_claim(&one("c3", ask_part("21Gi"))), NO);
    assert_eq!(world.try_claim(&gpus("c3", 1)), NO, "a plain claim takes all of a device");
}

#[test]
fn requests_of_one_pod_share_a_device_but_not_within_a_request() {
    let world = World::new(vec![slice("n1", vec![shared_gpu("a", 40)])]);
    let part = || ask_part("20Gi");
    let pair = claim("c1", vec![request("x", part()), request("y", part())]);
    assert_eq!(world.try_claim(&pair), "x=a y=a");
    assert_eq!(
        world.try_claim(&one("c1", DeviceRequest { count: Count::Exactly(2), ..part() })),
        NO
    );
    let three = claim("c1", vec![request("x", part()), request("y", part()), request("z", part())]);
    assert_eq!(world.try_claim(&three), NO);
}

#[test]
fn who_does_not_say_takes_the_default_or_all() {
    assert_eq!(taken(None, None).as_deref(), Some("10"));
    assert_eq!(taken(policy("3", AllowedAmounts::Any), None).as_deref(), Some("3"));
    assert_eq!(taken(policy("0", range("0", None, None)), None).as_deref(), Some("0"));
}

#[test]
fn without_a_policy_any_amount_is_taken() {
    assert_eq!(taken(None, Some("2500m")).as_deref(), Some("2500m"));
    assert_eq!(taken(None, Some("0")).as_deref(), Some("0"));
    assert_eq!(taken(None, Some("11")), None);
}

#[test]
fn values_are_rounded_up_to_the_next_that_is_valid() {
    let values = || {
        let values = ["1", "4", "8"].map(q).to_vec();
        policy("4", AllowedAmounts::Values(values))
    };
    for (asked, expected) in [("500m", Some("1")), ("4", Some("4")), ("5", Some("8")), ("9", None)]
    {
        assert_eq!(taken(values(), Some(asked)).as_deref(), expected, "{asked}");
    }
}

#[test]
fn ranges_are_rounded_up_from_the_minimum() {
    let steps = || policy("2", range("2", Some("8"), Some("3")));
    for (asked, expected) in
        [("1", Some("2")), ("2", Some("2")), ("3", Some("5")), ("6", Some("8")), ("9", None)]
    {
        assert_eq!(taken(steps(), Some(asked)).as_deref(), expected, "{asked}");
    }
    let free = || policy("2", range("2", Some("8"), None));
    for (asked, expected) in [("1", Some("2")), ("2500m", Some("2500m")), ("8001m", None)] {
        assert_eq!(taken(free(), Some(asked)).as_deref(), expected, "{asked}");
    }
}

#[test]
fn steps_are_computed_in_whole_units() {
    // 12.5 with a step of 0.5 becomes 13. Octavo therefore publishes no step for percentages.
    let steps = || policy("1", range("0", Some("10"), Some("500m")));
    assert_eq!(taken(steps(), Some("2500m")).as_deref(), Some("3"));
}

#[test]
fn capacities_that_the_device_does_not_name_are_not_had() {
    let world = World::new(vec![slice("n1", vec![shared_gpu("a", 40)])]);
    for name in ["compute", "gpu.example/memory"] {
        let capacity = [(name.to_owned(), q("1"))].into();
        assert_eq!(world.try_claim(&one("c1", DeviceRequest { capacity, ..ask(1) })), NO, "{name}");
    }
}

#[test]
fn a_device_for_one_claim_serves_whole_for_a_part() {
    let memory = Capacity::whole(q("40Gi"));
    let capacity = [("memory".to_owned(), memory)].into();
    let mut world = World::new(vec![slice("n1", vec![Device { capacity, ..device("a") }])]);
    assert_eq!(world.try_claim(&one("c1", ask_part("50Gi"))), NO);
    let result = world.give(one("c1", ask_part("10Gi"))).results.remove(0);
    assert_eq!((result.share_id, result.consumed.len()), (None, 0));
    assert_eq!(world.try_claim(&one("c2", ask_part("10Gi"))), NO);
}

#[test]
fn devices_without_capacities_are_shared_without_end() {
    let gpu = Device { allow_multiple: true, ..device("a") };
    let mut world = World::new(vec![slice("n1", vec![gpu])]);
    for name in ["c1", "c2", "c3"] {
        let result = world.give(gpus(name, 1)).results.remove(0);
        assert!(result.share_id.is_some() && result.consumed.is_empty());
    }
}

#[test]
fn a_change_of_sharing_does_not_book_a_device_twice() {
    let mut world = World::new(vec![slice("n1", vec![shared_gpu("a", 40)])]);
    world.give(one("c1", ask_part("10Gi")));
    world.slices[0].devices[0].allow_multiple = false;
    assert_eq!(world.try_claim(&gpus("c2", 1)), NO);
    world.claims.clear();
    world.give(gpus("c1", 1));
    world.slices[0].devices[0].allow_multiple = true;
    assert_eq!(world.try_claim(&one("c2", ask_part("1Gi"))), NO);
}

#[test]
fn administration_of_a_shared_device_asks_for_capacity_as_others_do() {
    // As in Kubernetes. A monitor should request no memory.
    let mut world = World::new(vec![slice("n1", vec![shared_gpu("a", 40)])]);
    world.give(gpus("c1", 1));
    assert_eq!(world.try_claim(&one("c2", admin(ask(1)))), NO);
}

#[test]
fn without_the_feature_devices_are_whole() {
    let mut world = World::new(vec![slice("n1", vec![shared_gpu("a", 40)])]);
    world.features = world.features.without(Feature::ConsumableCapacity);
    assert!(world.try_claim(&one("c1", ask_part("1Gi"))).contains("ConsumableCapacity"));
    let result = world.give(gpus("c1", 1)).results.remove(0);
    assert_eq!((result.share_id, result.consumed.len()), (None, 0));
    assert_eq!(world.try_claim(&gpus("c2", 1)), NO);
}
