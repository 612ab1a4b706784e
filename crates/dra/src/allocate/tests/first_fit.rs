use super::fixtures::*;
use crate::*;

const NO: &str = "the node's free devices do not serve all claims";

#[test]
fn the_first_free_device_in_the_slices_order_is_taken() {
    let world = World::new(vec![slice("n1", devices(&["b", "a", "c"]))]);
    assert_eq!(world.try_claim(&gpus("c1", 2)), "r=b r=a");
}

#[test]
fn devices_of_other_claims_are_passed_over() {
    let mut world = World::new(vec![slice("n1", devices(&["a", "b"]))]);
    world.give(gpus("c1", 1));
    assert_eq!(world.try_claim(&gpus("c2", 1)), "r=b");
    world.give(gpus("c2", 1));
    assert_eq!(world.try_claim(&gpus("c3", 1)), NO);
}

#[test]
fn claims_of_a_pod_do_not_get_the_same_device() {
    let world = World::new(vec![slice("n1", devices(&["a", "b"]))]);
    let (first, second) = (gpus("c1", 1), gpus("c2", 1));
    assert_eq!(world.try_claims(&[&first, &second]), "r=a r=b");
    assert_eq!(world.try_claims(&[&first, &gpus("c3", 2)]), NO);
    assert_eq!(world.try_claims(&[]), "");
}

#[test]
fn another_nodes_devices_are_out_of_reach() {
    let world = World::new(vec![slice("n2", devices(&["a"]))]);
    assert_eq!(world.try_claim(&gpus("c1", 1)), NO);
    assert!(world.allocate_on(&node("n2"), &[&gpus("c1", 1)]).is_ok());
}

#[test]
fn a_greedy_first_choice_is_given_back_for_a_later_request() {
    let small = device_with("small", &[("size", "small")]);
    let large = device_with("large", &[("size", "large")]);
    let world = World::new(vec![slice("n1", vec![large, small])]);
    let any_then_large =
        claim("c1", vec![request("any", ask(1)), request("large", ask_where(1, "size", "large"))]);
    assert_eq!(world.try_claim(&any_then_large), "any=small large=large");
    let (any, large) = (gpus("c1", 1), one("c2", ask_where(1, "size", "large")));
    assert_eq!(world.try_claims(&[&any, &large]), "r=small r=large");
}

#[test]
fn administration_neither_excludes_nor_is_excluded() {
    let mut world = World::new(vec![slice("n1", devices(&["a"]))]);
    world.give(gpus("c1", 1));
    let monitor = one("c2", admin(ask(1)));
    assert_eq!(world.try_claim(&monitor), "r=a");
    let allocation = world.give(monitor);
    assert!(allocation.results[0].admin_access);
    world.claims.remove(0);
    assert_eq!(world.try_claim(&gpus("c3", 1)), "r=a", "what admins see is free for others");
}

#[test]
fn administration_takes_a_device_once_in_a_claim() {
    let world = World::new(vec![slice("n1", devices(&["a"]))]);
    assert_eq!(world.try_claim(&one("c1", admin(ask(2)))), NO);
    let (first, second) = (one("c1", admin(ask(1))), one("c2", admin(ask(1))));
    assert_eq!(world.try_claims(&[&first, &second]), "r=a r=a");
}

#[test]
fn in_one_pod_administration_keeps_the_device_from_later_requests() {
    // Surprising but as in Kubernetes: the order of claims matters.
    let world = World::new(vec![slice("n1", devices(&["a"]))]);
    let (monitor, own) = (one("c1", admin(ask(1))), gpus("c2", 1));
    assert_eq!(world.try_claims(&[&monitor, &own]), NO);
    assert_eq!(world.try_claims(&[&own, &monitor]), "r=a r=a");
}

#[test]
fn a_claim_has_at_most_32_results() {
    let names: Vec<String> = (0..40).map(|index| format!("d{index:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::new(vec![slice("n1", devices(&names))]);
    assert_eq!(world.try_claim(&gpus("c1", 32)).split(' ').count(), 32);
    let error = world.allocate_on(&node("n1"), &[&gpus("c1", 33)]).unwrap_err();
    assert_eq!(error.to_string(), "claim team/c1 asks for 33 devices; a claim may have 32");
    assert!(!error.is_node_specific());
    let two = claim("c2", vec![request("a", ask(20)), request("b", ask(20))]);
    assert!(world.try_claim(&two).contains("asks for 40 devices"));
    assert_eq!(world.try_claims(&[&gpus("c1", 20), &gpus("c2", 20)]).split(' ').count(), 40);
}

#[test]
fn an_unknown_class_is_an_error_of_the_claim() {
    let world = World::new(vec![slice("n1", devices(&["a"]))]);
    let wanted = one("c1", DeviceRequest { class: "tpu".to_owned(), ..ask(1) });
    let error = world.allocate_on(&node("n1"), &[&wanted]).unwrap_err();
    assert_eq!(error.to_string(), "claim team/c1, request r: there is no device class tpu");
    assert!(!error.is_node_specific());
}

#[test]
fn what_cannot_be_is_refused_in_few_steps() {
    let names: Vec<String> = (0..30).map(|index| format!("d{index:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::new(vec![slice("n1", devices(&names))]);
    let allocator = world.allocator().with_max_steps(2000);
    let impossible = ask_where(1, "size", "large");
    let mut tagged = world.slices.clone();
    for (index, device) in tagged[0].devices.iter_mut().enumerate() {
        let size = AttributeValue::String(if index == 0 { "huge" } else { "small" }.to_owned());
        device.attributes.insert("size".to_owned(), size);
    }
    let too_many = allocator.allocate(&node("n1"), &[&gpus("c1", 31)], &mut String::new);
    assert_eq!(too_many, Err(AllocateError::NoFit));
    let allocator =
        Allocator::new(&world.classes, &tagged, [], world.features).with_max_steps(2000);
    let wanted = claim("c1", vec![request("half", ask(15)), request("large", impossible)]);
    let error = allocator.allocate(&node("n1"), &[&wanted], &mut String::new);
    assert_eq!(error, Err(AllocateError::NoFit), "the second request is looked at alone");
}

#[test]
fn a_search_without_end_is_given_up() {
    let of_rack = |index: usize| device_with(&format!("d{index:02}"), &[("rack", "a")]);
    let world = World::new(vec![slice("n1", (0..24).map(of_rack).collect())]);
    // Each request could be satisfied alone, but never the last two together.
    let requests = vec![request("x", ask(11)), request("y", ask(1)), request("z", ask(1))];
    let constraints = vec![distinct("rack", &["y", "z"])];
    let wanted = Claim { constraints, ..claim("c1", requests) };
    let allocator = world.allocator().with_max_steps(500);
    let error = allocator.allocate(&node("n1"), &[&wanted], &mut String::new).unwrap_err();
    assert_eq!(error, AllocateError::Steps { limit: 500 });
    assert!(error.is_node_specific());
}

#[test]
fn other_claims_can_be_held_against_the_same_slices() {
    let mut world = World::new(vec![slice("n1", devices(&["a", "b"]))]);
    world.give(gpus("c1", 1));
    let allocator = world.allocator();
    let device = |allocator: &Allocator<'_>| {
        let allocations = allocator.allocate(&node("n1"), &[&gpus("c2", 1)], &mut String::new);
        allocations.unwrap()[0].results[0].device.clone()
    };
    assert_eq!(device(&allocator), "b");
    assert_eq!(device(&allocator.with_claims([])), "a");
}

#[test]
fn an_allocator_is_shared_by_threads() {
    fn is_shared<T: Send + Sync>(_: &T) {}
    is_shared(&World::new(Vec::new()).allocator());
}
