use super::fixtures::*;
use crate::*;

const NO: &str = "the node's free devices do not serve all claims";

/// Devices `a`, `b`, … in racks.
fn racks(racks: &[&str]) -> World {
    let device = |(name, rack): (char, &&str)| device_with(&name.to_string(), &[("rack", rack)]);
    World::new(vec![slice("n1", ('a'..).zip(racks).map(device).collect())])
}

fn constrained(requests: Vec<Request>, constraint: Constraint) -> Claim {
    Claim { constraints: vec![constraint], ..claim("c1", requests) }
}

#[test]
fn matching_devices_are_sought_beyond_the_first() {
    let world = racks(&["1", "2", "3", "2"]);
    let pair = constrained(vec![request("r", ask(2))], matching("rack", &[]));
    assert_eq!(world.try_claim(&pair), "r=b r=d");
    let three = constrained(vec![request("r", ask(3))], matching("rack", &[]));
    assert_eq!(world.try_claim(&three), NO);
}

#[test]
fn a_constraint_covers_only_the_requests_that_it_names() {
    let world = racks(&["1", "2", "2"]);
    let requests = || vec![request("x", ask(1)), request("y", ask(1)), request("z", ask(1))];
    let of_two = constrained(requests(), matching("rack", &["y", "z"]));
    assert_eq!(world.try_claim(&of_two), "x=a y=b z=c");
    assert_eq!(world.try_claim(&constrained(requests(), matching("rack", &[]))), NO);
}

#[test]
fn a_device_without_the_attribute_does_not_satisfy() {
    let world = World::new(vec![slice("n1", devices(&["a"]))]);
    for constraint in [matching("rack", &[]), distinct("rack", &[])] {
        assert_eq!(world.try_claim(&constrained(vec![request("r", ask(1))], constraint)), NO);
    }
}

#[test]
fn attributes_are_found_with_and_without_their_domain() {
    let full = device_with("a", &[("gpu.example/rack", "1")]);
    let short = device_with("b", &[("rack", "1")]);
    let foreign = device_with("c", &[("other.example/rack", "1")]);
    let world = World::new(vec![slice("n1", vec![full, short, foreign])]);
    let two = constrained(vec![request("r", ask(2))], matching("rack", &[]));
    assert_eq!(world.try_claim(&two), "r=a r=b");
    let three = constrained(vec![request("r", ask(3))], matching("rack", &[]));
    assert_eq!(world.try_claim(&three), NO);
}

#[test]
fn values_of_different_types_never_match() {
    let mut world = racks(&["1", "1"]);
    let number = AttributeValue::Int(1);
    world.slices[0].devices[1].attributes.insert("rack".to_owned(), number);
    let pair = || vec![request("r", ask(2))];
    assert_eq!(world.try_claim(&constrained(pair(), matching("rack", &[]))), NO);
    assert_eq!(world.try_claim(&constrained(pair(), distinct("rack", &[]))), "r=a r=b");
}

#[test]
fn distinct_devices_differ_from_all_others() {
    let world = racks(&["1", "1", "2", "1", "3"]);
    let three = constrained(vec![request("r", ask(3))], distinct("rack", &[]));
    assert_eq!(world.try_claim(&three), "r=a r=c r=e");
    let requests = vec![request("x", ask(1)), request("y", ask(1)), request("z", ask(1))];
    assert_eq!(world.try_claim(&constrained(requests, distinct("rack", &[]))), "x=a y=c z=e");
    let four = constrained(vec![request("r", ask(4))], distinct("rack", &[]));
    assert_eq!(world.try_claim(&four), NO);
}

#[test]
fn kubernetes_forgets_all_but_the_last_value_of_a_request() {
    let mut world = racks(&["1", "2", "1"]);
    let three = constrained(vec![request("r", ask(3))], distinct("rack", &[]));
    assert_eq!(world.try_claim(&three), NO);
    world.features = world.features.with(Feature::UpstreamBugs);
    assert_eq!(world.try_claim(&three), "r=a r=b r=c");
}

#[test]
fn constraints_name_lists_or_their_alternatives() {
    let world = racks(&["1", "2", "2"]);
    let list = || first_of("y", vec![("two", ask(2)), ("one", ask(1))]);
    let whole = constrained(vec![request("x", ask(1)), list()], matching("rack", &["x", "y"]));
    assert_eq!(world.try_claim(&whole), "x=b y/one=c");
    let of_two = constrained(vec![request("x", ask(1)), list()], matching("rack", &["x", "y/two"]));
    assert_eq!(world.try_claim(&of_two), "x=a y/one=b");
}

#[test]
fn constraints_hold_within_a_claim_only() {
    let world = racks(&["1", "2"]);
    let own = || constrained(vec![request("r", ask(1))], matching("rack", &[]));
    assert_eq!(world.try_claims(&[&own(), &own()]), "r=a r=b");
}
