use super::fixtures::*;
use crate::*;

/// The mismatch of each device for the first request, as text.
fn words(world: &World, claim: &Claim) -> Vec<String> {
    let explanation = world.allocator().explain(&node("n1"), &[claim]);
    words_of(&explanation.requests[0])
}

fn words_of(request: &RequestExplanation) -> Vec<String> {
    let words = |verdict: &DeviceVerdict| {
        let reason = verdict.reason.as_ref().map_or("free".to_owned(), DeviceMismatch::to_string);
        format!("{}: {reason}", verdict.device.device)
    };
    request.devices.iter().map(words).collect()
}

#[test]
fn what_fits_has_no_refusal() {
    let world = World::new(vec![slice("n1", devices(&["a"]))]);
    let explanation = world.allocator().explain(&node("n1"), &[&gpus("c1", 1)]);
    assert_eq!((explanation.error, explanation.clash), (None, None));
    assert!(explanation.requests[0].is_enough());
    assert_eq!(explanation.requests[0].request, "r");
    assert_eq!(explanation.requests[0].claim.to_string(), "team/c1");
    assert_eq!(explanation.requests[0].devices[0].device.to_string(), "gpu.example/n1/a");
}

#[test]
fn each_device_has_its_own_reason() {
    let sized = |name, size| device_with(name, &[("size", size)]);
    let taint = DeviceTaint {
        key: "example.com/sick".to_owned(),
        value: "xid-79".to_owned(),
        effect: TaintEffect::NoExecute,
    };
    let sick = Device { taints: vec![taint], ..sized("sick", "big") };
    let mut world =
        World::new(vec![slice("n1", vec![sized("small", "small"), sized("taken", "big"), sick])]);
    world.give(one("c0", ask_where(1, "size", "big")));
    let wanted = one("c1", ask_where(1, "size", "big"));
    assert_eq!(
        words(&world, &wanted),
        [
            "small: the request excludes it: device.attributes[\"gpu.example\"].size == \
             \"big\"",
            "taken: in use by team/c0",
            "sick: tainted example.com/sick=xid-79:NoExecute",
        ]
    );
    let explanation = world.allocator().explain(&node("n1"), &[&wanted]);
    assert_eq!(explanation.error, Some(AllocateError::NoFit));
    assert!(!explanation.requests[0].is_enough());
    assert_eq!(explanation.clash, None);
}

#[test]
fn a_class_says_that_it_does_not_want_a_device() {
    let mut foreign = slice("n1", devices(&["x"]));
    foreign.driver = "a.example".to_owned();
    let message = words(&World::new(vec![foreign]), &gpus("c1", 1));
    assert_eq!(message, ["x: class gpu excludes it: device.driver == \"gpu.example\""]);
}

#[test]
fn a_share_that_does_not_fit_is_explained_in_numbers() {
    let mut world = World::new(vec![slice("n1", vec![shared_gpu("a", 40)])]);
    world.give(one("c0", ask_part("30Gi")));
    assert_eq!(
        words(&world, &one("c1", ask_part("20Gi"))),
        ["a: 20Gi of memory wanted, 10Gi left beside team/c0"]
    );
    assert_eq!(
        words(&world, &one("c1", ask_part("50Gi"))),
        ["a: its policy does not allow 50Gi of memory"]
    );
    let capacity = [("compute".to_owned(), q("50"))].into();
    let other = one("c1", DeviceRequest { capacity, ..ask(1) });
    assert_eq!(words(&world, &other), ["a: it has no capacity compute"]);
}

#[test]
fn counters_tell_who_draws_from_them() {
    let half = |name| drawing(device(name), "g", &[("slices", 1)]);
    let whole = drawing(device("whole"), "g", &[("slices", 2)]);
    let sets = vec![counters("g", &[("slices", 2)])];
    let mut world = World::new(partitionable(sets, vec![half("half"), whole]));
    world.give(gpus("c0", 1));
    assert_eq!(
        words(&world, &gpus("c1", 1)),
        ["half: in use by team/c0", "whole: 2 of slices in g wanted, 1 left beside team/c0"]
    );
}

#[test]
fn devices_of_unusable_pools_are_listed_with_the_reason() {
    let mut part = slice("n1", devices(&["x"]));
    (part.pool, part.slice_count) = ("second".to_owned(), 2);
    let world = World::new(vec![slice("n1", devices(&["a", "a"])), part]);
    let wanted = gpus("c1", 1);
    let invalid = "a: its pool is invalid: two devices are named a";
    assert_eq!(words(&world, &wanted), [invalid, invalid, "x: its pool is being updated"]);
    let error = world.allocator().explain(&node("n1"), &[&wanted]).error.unwrap();
    assert!(matches!(error, AllocateError::InvalidPool { .. }));
    assert!(error.is_node_specific());
}

#[test]
fn a_device_for_other_nodes_says_so() {
    let mut mixed = slice("n1", devices(&["here", "there"]));
    mixed.nodes = NodeScope::PerDevice;
    mixed.devices[0].nodes = Some(NodeScope::All);
    mixed.devices[1].nodes = Some(NodeScope::Node("n2".to_owned()));
    let world = World::new(vec![mixed]);
    let message = words(&world, &gpus("c1", 2));
    assert_eq!(message, ["here: free", "there: it is for other nodes"]);
}

#[test]
fn requests_that_fit_only_alone_are_shown_as_a_clash() {
    let world = World::new(vec![slice("n1", devices(&["a", "b"]))]);
    let wanted = claim("c1", vec![request("x", ask(2)), request("y", ask(1))]);
    let explanation = world.allocator().explain(&node("n1"), &[&wanted]);
    assert_eq!(explanation.error, Some(AllocateError::NoFit));
    assert!(explanation.requests.iter().all(RequestExplanation::is_enough));
    let clash = explanation.clash.unwrap();
    let words = |one: &Placed| format!("{} {}={}", one.claim, one.request, one.device);
    let placed: Vec<String> = clash.placed.iter().map(words).collect();
    assert_eq!(placed, ["team/c1 x=gpu.example/n1/a", "team/c1 x=gpu.example/n1/b"]);
    assert_eq!(clash.request.request, "y");
    assert_eq!(
        words_of(&clash.request),
        [
            "a: the same pod has it for request x of team/c1",
            "b: the same pod has it for request x of team/c1"
        ]
    );
}

#[test]
fn a_broken_constraint_is_named() {
    let rack = |name, rack| device_with(name, &[("rack", rack)]);
    let world = World::new(vec![slice("n1", vec![rack("a", "1"), rack("b", "2")])]);
    let mut wanted = gpus("c1", 2);
    wanted.constraints.push(matching("rack", &[]));
    let clash = world.allocator().explain(&node("n1"), &[&wanted]).clash.unwrap();
    // One device is always chosen, and the others are checked beside it.
    assert_eq!(clash.placed.len(), 1);
    assert_eq!(
        words_of(&clash.request),
        [
            "a: the same pod has it for request r of team/c1",
            "b: devices must agree in gpu.example/rack"
        ]
    );
}

#[test]
fn claim_errors_are_reported_without_devices() {
    let world = World::new(vec![slice("n1", devices(&["a"]))]);
    let wanted = one("c1", DeviceRequest { class: "tpu".to_owned(), ..ask(1) });
    let explanation = world.allocator().explain(&node("n1"), &[&wanted]);
    assert!(matches!(explanation.error, Some(AllocateError::Request { .. })));
    assert!(explanation.requests.is_empty());
}

#[test]
fn claim_errors_differ_from_node_errors() {
    let names: Vec<String> = (0..40).map(|index| format!("d{index:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let world = World::new(vec![slice("n1", devices(&names))]);
    let error = |wanted: Claim| world.allocate_on(&node("n1"), &[&wanted]).unwrap_err();
    let unknown = DeviceRequest { class: "tpu".to_owned(), ..ask(1) };
    assert!(error(one("c1", unknown)).is_claim_specific());
    assert!(error(gpus("c1", 33)).is_claim_specific());
    let all = error(one("c1", ask_all()));
    assert!(
        matches!(all, AllocateError::TooManyDevices { wanted: 40, .. }) && !all.is_claim_specific()
    );
    let failing = error(one("c1", ask_where(1, "absent", "x")));
    assert!(!failing.is_claim_specific() && !failing.is_unsupported_selector());
    let selectors = vec!["timestamp('2026-01-05T10:00:00Z') != null".to_owned()];
    assert!(error(one("c1", DeviceRequest { selectors, ..ask(1) })).is_unsupported_selector());
}
