use octavo_kubelet_api::device_plugin::v1beta1::ContainerAllocateResponse;
use serde_json::json;

use super::*;
use crate::kubelet::device_manager::allocations::{Allocated, NO_NUMA_NODE};
use crate::kubelet::device_manager::resources::Device;

const GPU: &str = "nvidia.com/gpu";

fn set(ids: &[&str]) -> BTreeSet<DeviceId> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

fn resources(healthy: &[&str], unhealthy: &[&str]) -> Resources<()> {
    let mut resources = Resources::default();
    let registration = resources.connected(GPU, ());
    let device = |is_healthy| Device { is_healthy, numa_nodes: Vec::new() };
    let healthy = healthy.iter().map(|id| ((*id).to_owned(), device(true)));
    let unhealthy = unhealthy.iter().map(|id| ((*id).to_owned(), device(false)));
    resources.list(GPU, registration, healthy.chain(unhealthy).collect());
    resources
}

fn key<'a>(pod: &'a str, container: &'a str) -> ContainerKey<'a> {
    ContainerKey { pod, container }
}

fn give(allocations: &mut Allocations, pod: &str, container: &str, ids: &[&str]) {
    let ids = ids.iter().map(|id| (*id).to_owned()).collect();
    let answer = ContainerAllocateResponse::default();
    let allocated = Allocated { devices: [(NO_NUMA_NODE, ids)].into(), answer };
    allocations.insert(key(pod, container), GPU, allocated);
}

fn wish(container: &str, count: usize) -> Wish<'_> {
    Wish { key: key("pod", container), resource: GPU, count, is_running: false }
}

fn text(choice: Result<Choice, ChoiceError>) -> String {
    choice.unwrap_err().to_string()
}

#[test]
fn healthy_devices_that_nothing_has_are_chosen_and_preferred_ones_first() {
    let mut allocations = Allocations::default();
    give(&mut allocations, "other", "main", &["1"]);
    let resources = resources(&["0", "1", "3", "4"], &["2"]);
    let choice = choose(wish("main", 2), &resources, &allocations, &Reusable::new()).unwrap();
    let Choice::Among(candidates) = choice else { panic!("{choice:?}") };
    assert_eq!(candidates.available(), ["0", "3", "4"]);
    let all = ["1", "2", "4"].map(str::to_owned);
    assert_eq!(candidates.clone().complete(&all), set(&["0", "4"]), "1 and 2 are not to be had");
    assert_eq!(candidates.clone().complete(&[]), set(&["0", "3"]));
    let too_many = ["0", "3", "4"].map(str::to_owned);
    assert_eq!(candidates.complete(&too_many).len(), 2);
}

#[test]
fn devices_that_are_not_there_are_an_error_in_the_kubelet_s_words() {
    let (none, reusable) = (Allocations::default(), Reusable::new());
    let choose = |count, resources: &Resources<()>, allocations: &Allocations| {
        text(choose(wish("main", count), resources, allocations, &reusable))
    };
    assert_eq!(
        choose(3, &resources(&["0", "1"], &["2"]), &none),
        "requested number of devices unavailable for nvidia.com/gpu. Requested: 3, Available: 2"
    );
    assert_eq!(
        choose(1, &Resources::known([GPU.to_owned()]), &none),
        "no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu"
    );
    assert_eq!(
        choose(1, &Resources::default(), &none),
        "cannot allocate unregistered device nvidia.com/gpu"
    );
    let mut held = Allocations::default();
    give(&mut held, "pod", "main", &["2"]);
    assert_eq!(
        choose(1, &resources(&["0"], &["2"]), &held),
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices nvidia.com/gpu"
    );
    assert_eq!(
        choose(2, &resources(&["0", "2"], &[]), &held),
        "pod \"pod\" container \"main\" changed request for resource \"nvidia.com/gpu\" from 1 to 2"
    );
}

#[test]
fn a_container_keeps_what_it_has_and_one_that_runs_needs_no_plugin() {
    let mut allocations = Allocations::default();
    give(&mut allocations, "pod", "main", &["0"]);
    let reusable = Reusable::new();
    let listed = resources(&["0"], &[]);
    assert_eq!(choose(wish("main", 1), &listed, &allocations, &reusable), Ok(Choice::Nothing));
    let away = Resources::<()>::known([GPU.to_owned()]);
    let runs = Wish { is_running: true, ..wish("main", 1) };
    assert_eq!(choose(runs, &away, &allocations, &reusable), Ok(Choice::Nothing));
    let none = choose(wish("side", 0), &listed, &allocations, &reusable);
    assert_eq!(none, Ok(Choice::Nothing));
}

#[test]
fn devices_of_init_containers_are_used_again_and_those_of_sidecars_are_not() {
    let resources = resources(&["0", "1", "2", "3"], &[]);
    let (mut allocations, mut reusable) = (Allocations::default(), Reusable::new());
    give(&mut allocations, "pod", "init", &["2", "3"]);
    pass_on(&mut reusable, key("pod", "init"), true, &allocations);
    let all = choose(wish("main", 2), &resources, &allocations, &reusable);
    assert_eq!(all, Ok(Choice::Fixed(set(&["2", "3"]))));
    let choice = choose(wish("main", 3), &resources, &allocations, &reusable).unwrap();
    let expected = Candidates { taken: set(&["2", "3"]), free: set(&["0", "1"]), missing: 1 };
    assert_eq!(choice, Choice::Among(expected.clone()));
    assert_eq!(expected.complete(&["1".to_owned()]), set(&["1", "2", "3"]));

    give(&mut allocations, "pod", "sidecar", &["2"]);
    pass_on(&mut reusable, key("pod", "sidecar"), false, &allocations);
    assert_eq!(reusable[GPU], set(&["3"]));
    give(&mut allocations, "pod", "main", &["3"]);
    pass_on(&mut reusable, key("pod", "main"), false, &allocations);
    assert_eq!(reusable[GPU], set(&[]));
}

#[test]
fn only_resources_of_plugins_that_no_claim_serves_are_wished() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "spec": {"containers": [
            {"name": "a", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "1", "b/nic": "1"}}},
            {"name": "b", "resources": {"limits": {"nvidia.com/gpu": "1k", "memory": "1Gi"}}},
        ]},
        "status": {"extendedResourceClaimStatus": {
            "resourceClaimName": "c",
            "requestMappings": [
                {"containerName": "a", "resourceName": "nvidia.com/gpu", "requestName": "r"},
            ],
        }},
    }))
    .unwrap();
    let (resources, mut allocations) = (resources(&["0"], &[]), Allocations::default());
    let containers = &pod.spec.as_ref().unwrap().containers;
    let of = |container: &Container, allocations: &Allocations| {
        wishes(&pod, container, &resources, allocations)
    };
    assert_eq!(of(&containers[0], &allocations), []);
    assert_eq!(of(&containers[1], &allocations), [(GPU.to_owned(), 1000)]);
    // A resource counts as one of a plugin while a container has some of it.
    let allocated = Allocated::default();
    allocations.insert(key("other", "c"), "b/nic", allocated);
    assert_eq!(of(&containers[0], &allocations), [("b/nic".to_owned(), 1)]);
}
