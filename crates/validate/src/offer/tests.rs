use serde_json::{Value, json};

use super::*;

const NODE: &str = "gpu-1";

fn node(allocatable: &Value) -> Node {
    let object = json!({"metadata": {"name": NODE}, "status": {"allocatable": allocatable}});
    serde_json::from_value(object).unwrap()
}

fn slice(driver: &str, node: &str, devices: &Value) -> ResourceSlice {
    serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {
        "driver": driver, "nodeName": node, "devices": devices,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}}}))
    .unwrap()
}

fn device(name: &str, kind: &str, owner: Option<&str>) -> Value {
    let taint = owner.map(
        |owner| json!({"key": "octavo.dev/scheduler", "value": owner, "effect": "NoSchedule"}),
    );
    json!({"name": name, "attributes": {"type": {"string": kind}},
        "taints": taint.into_iter().collect::<Vec<_>>()})
}

#[test]
fn slices_of_the_node_are_an_offer_of_whole_gpus_before_parts() {
    let devices = json!([
        device("gpu-0", "gpu", None),
        device("gpu-1-mig-0", "mig", None),
        device("gpu-2", "gpu", None)
    ]);
    let own = slice("gpu.nvidia.com", NODE, &devices);
    let other = slice("gpu.nvidia.com", "gpu-2", &devices);
    let nic = slice("nic.example", NODE, &devices);
    let offer = Offer::of(&node(&json!({})), &[other.clone(), own, nic.clone()]).unwrap();
    assert_eq!(offer, Offer::Claims { class: CLASS_GPU, devices: 2, scheduler: None });
    assert_eq!(
        (offer.mode(), offer.to_string().as_str()),
        ("dra", "the ResourceSlices have devices of class gpu.nvidia.com: 2")
    );
    assert_eq!(Offer::of(&node(&json!({})), &[other, nic]), None);
}

#[test]
fn a_node_with_parts_alone_offers_these_and_the_owner_gives_them() {
    let devices = json!([device("gpu-0-mig-0", "mig", Some("octavo"))]);
    let slices = [slice("gpu.nvidia.com", NODE, &devices)];
    let offer = Offer::of(&node(&json!({"nvidia.com/gpu": "0"})), &slices);
    let scheduler = Some("octavo".to_owned());
    assert_eq!(offer, Some(Offer::Claims { class: CLASS_MIG, devices: 1, scheduler }));
}

#[test]
fn without_slices_the_counted_resources_are_the_offer() {
    let of = |allocatable: Value| Offer::of(&node(&allocatable), &[]);
    let resources =
        |resource: &str, amount| Some(Offer::Resources { resource: resource.to_owned(), amount });
    let many = json!({"cpu": "8", "nvidia.com/mig-1g.10gb": "7", "nvidia.com/gpu": "6"});
    assert_eq!(of(many), resources("nvidia.com/gpu", 6));
    let none_whole = json!({"nvidia.com/gpu": "0", "nvidia.com/mig-1g.10gb": "7"});
    assert_eq!(of(none_whole), resources("nvidia.com/mig-1g.10gb", 7));
    assert_eq!(of(json!({"nvidia.com/gpu.shared": "32"})), resources("nvidia.com/gpu.shared", 32));
    assert_eq!(of(json!({"nvidia.com/hostdev": "4", "amd.com/gpu": "8"})), None);
}
