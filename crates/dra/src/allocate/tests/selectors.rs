use super::fixtures::*;
use crate::*;

#[test]
fn class_and_request_selectors_must_all_match() {
    let device = |name, kind, size| device_with(name, &[("kind", kind), ("size", size)]);
    let world = World::new(vec![slice(
        "n1",
        vec![device("a", "mig", "big"), device("b", "full", "small"), device("c", "full", "big")],
    )]);
    let mut wanted = ask_where(1, "kind", "full");
    wanted.selectors.extend(ask_where(1, "size", "big").selectors);
    assert_eq!(world.try_claim(&one("c1", wanted)), "r=c");
}

#[test]
fn a_class_takes_devices_of_its_driver_only() {
    let mut foreign = slice("n1", devices(&["x"]));
    (foreign.driver, foreign.name) = ("a.example".to_owned(), "foreign".to_owned());
    let world = World::new(vec![foreign, slice("n1", devices(&["a"]))]);
    assert_eq!(world.try_claim(&gpus("c1", 1)), "r=a");
}

#[test]
fn a_selector_that_fails_on_a_device_is_an_error_of_the_claim() {
    let world = World::new(vec![slice("n1", devices(&["a"]))]);
    let wanted = one("c1", ask_where(1, "absent", "x"));
    let error = world.allocate_on(&node("n1"), &[&wanted]).unwrap_err();
    let message = error.to_string();
    assert!(message.starts_with("claim team/c1, request r: selector "), "{message}");
    assert!(message.contains("failed for device a: "), "{message}");
    assert!(!error.is_node_specific());
}

#[test]
fn a_selector_that_no_device_reaches_does_no_harm() {
    // The class's selector is first; devices in use are not evaluated.
    let mut world = World::new(vec![slice("n1", devices(&["a"]))]);
    world.give(gpus("c0", 1));
    let wanted = one("c1", ask_where(1, "absent", "x"));
    assert_eq!(world.allocate_on(&node("n1"), &[&wanted]), Err(AllocateError::NoFit));
    let mut foreign = slice("n1", devices(&["x"]));
    foreign.driver = "a.example".to_owned();
    let world = World::new(vec![foreign]);
    assert_eq!(world.allocate_on(&node("n1"), &[&wanted]), Err(AllocateError::NoFit));
}

#[test]
fn a_class_whose_selector_does_not_compile_is_named() {
    let mut world = World::new(vec![slice("n1", devices(&["a"]))]);
    let selectors = vec!["device.driver ==".to_owned()];
    let class = Class { name: "broken".to_owned(), selectors, extended_resource: None };
    world.classes.insert(class, 0);
    let message =
        world.try_claim(&one("c1", DeviceRequest { class: "broken".to_owned(), ..ask(1) }));
    let start = "claim team/c1, request r: class broken: selector \"device.driver ==\" is invalid";
    assert!(message.starts_with(start), "{message}");
}

#[test]
fn an_error_names_the_device_that_it_is_about() {
    // Equivalent devices are evaluated once.
    let world = World::new(vec![slice("n1", devices(&["a"])), slice("n2", devices(&["b"]))]);
    let allocator = world.allocator();
    let wanted = one("c1", ask_where(1, "absent", "x"));
    for (name, device) in [("n1", "a"), ("n2", "b")] {
        let error = allocator.allocate(&node(name), &[&wanted], &mut String::new).unwrap_err();
        assert!(error.to_string().contains(&format!("for device {device}: ")), "{error}");
    }
}

#[test]
fn devices_that_need_binding_are_taken_last_and_only_with_the_feature() {
    let mut fabric = slice("n1", devices(&["a"]));
    (fabric.pool, fabric.name) = ("a-pool".to_owned(), "a-slice".to_owned());
    fabric.devices[0].binding_conditions = vec!["Attached".to_owned()];
    let mut world = World::new(vec![fabric, slice("n1", devices(&["b"]))]);
    assert_eq!(world.try_claim(&gpus("c1", 2)), "r=b r=a");
    world.features = world.features.without(Feature::BindingConditions);
    assert_eq!(world.try_claim(&gpus("c1", 1)), "r=b");
    assert_eq!(world.allocate_on(&node("n1"), &[&gpus("c1", 2)]), Err(AllocateError::NoFit));
}
