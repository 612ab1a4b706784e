use super::fixtures::*;
use crate::*;

const NO: &str = "the node's free devices do not serve all claims";

fn sizes(sizes: &[&str]) -> World {
    let device = |(name, size): (char, &&str)| device_with(&name.to_string(), &[("size", size)]);
    World::new(vec![slice("n1", ('a'..).zip(sizes).map(device).collect())])
}

fn of(size: &str) -> DeviceRequest {
    ask_where(1, "size", size)
}

#[test]
fn the_first_alternative_that_can_be_had_is_taken() {
    let list = claim("c1", vec![first_of("r", vec![("big", of("big")), ("small", of("small"))])]);
    assert_eq!(sizes(&["small", "big"]).try_claim(&list), "r/big=b");
    assert_eq!(sizes(&["small"]).try_claim(&list), "r/small=a");
    assert_eq!(sizes(&["tiny"]).try_claim(&list), NO);
}

#[test]
fn an_alternative_is_left_when_a_later_request_needs_its_device() {
    let list = first_of("x", vec![("big", of("big")), ("small", of("small"))]);
    let both = claim("c1", vec![list, request("y", of("big"))]);
    assert_eq!(sizes(&["small", "big"]).try_claim(&both), "x/small=a y=b");
}

#[test]
fn an_alternative_with_too_many_devices_makes_room_for_one_with_fewer() {
    let names: Vec<String> = (0..40).map(|index| format!("d{index:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::new(vec![slice("n1", devices(&names))]);
    let list = |name| first_of(name, vec![("many", ask(20)), ("few", ask(10))]);
    let both = claim("c1", vec![list("x"), list("y")]);
    let given = world.try_claim(&both);
    assert_eq!(given.matches("x/many=").count(), 20);
    assert_eq!(given.matches("y/few=").count(), 10);
    let over = claim("c1", vec![first_of("x", vec![("many", ask(33)), ("few", ask(1))])]);
    assert_eq!(world.try_claim(&over), "x/few=d00");
}

#[test]
fn each_alternative_has_its_own_count_capacity_and_tolerations() {
    let world = World::new(vec![slice("n1", vec![shared_gpu("a", 40)])]);
    let list = vec![("half", ask_part("50Gi")), ("quarter", ask_part("20Gi"))];
    assert_eq!(world.try_claim(&claim("c1", vec![first_of("r", list)])), "r/quarter=a");
    let list = vec![("two", ask(2)), ("all", ask_all())];
    assert_eq!(world.try_claim(&claim("c1", vec![first_of("r", list)])), "r/all=a");
}

#[test]
fn without_the_feature_lists_are_errors_of_the_claim() {
    let mut world = sizes(&["big"]);
    world.features = world.features.without(Feature::PrioritizedList);
    let list = claim("c1", vec![first_of("r", vec![("big", of("big"))])]);
    let error = world.allocate_on(&node("n1"), &[&list]).unwrap_err();
    let message = "claim team/c1, request r: it needs the feature PrioritizedList, which is off in this cluster";
    assert_eq!(error.to_string(), message);
}

#[test]
fn nodes_compare_by_the_alternatives_that_they_serve() {
    let score = |world: &World| {
        let list = first_of("r", vec![("big", of("big")), ("small", of("small"))]);
        let mut claim = claim("c1", vec![list, request("s", ask(1))]);
        let allocation = world.allocate_on(&node("n1"), &[&claim]).unwrap().remove(0);
        claim.allocation = Some(allocation);
        prioritized_list_score(&[&claim])
    };
    assert_eq!(score(&sizes(&["big", "tiny"])), 8);
    assert_eq!(score(&sizes(&["small", "tiny"])), 7);
}
