//! Pods with extended resources, served by classes or device plugins.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use octavo_testkit::Rng;

use super::namespaced;

const RESOURCE: &str = "example.com/gpu";

/// Generates the pod. Some classes serve extended resources, and some nodes have device plugins.
pub(super) fn pod(
    rng: &mut Rng,
    classes: &mut [api::DeviceClass],
    nodes: &mut [core::Node],
) -> core::Pod {
    // The newest class serves the resource; among classes of one age the first by name.
    let serving = rng.between(1, 2);
    for _ in 0..serving {
        let class = rng.below(classes.len());
        let class = &mut classes[class];
        class.spec.extended_resource_name = Some(RESOURCE.to_owned());
        let age = if rng.chance(50) { 1_700_000_000 } else { 1_800_000_000 };
        class.metadata.creation_timestamp =
            k8s_openapi::jiff::Timestamp::from_second(age).ok().map(Time);
    }
    for node in nodes {
        if rng.chance(25) {
            let count = Quantity(rng.word(&["0", "2"]).to_owned());
            let allocatable = BTreeMap::from([(RESOURCE.to_owned(), count)]);
            let allocatable = Some(allocatable);
            node.status = Some(core::NodeStatus { allocatable, ..Default::default() });
        }
    }
    let implicit = format!(
        "deviceclass.resource.kubernetes.io/{}",
        rng.pick(classes).metadata.name.clone().unwrap_or_default()
    );
    let mut left = 2;
    let mut container = |rng: &mut Rng, name: &str, restart_policy: Option<&str>| {
        let mut requests = BTreeMap::from([("cpu".to_owned(), Quantity("1".to_owned()))]);
        let mut ask = |name: &str, amount: usize| {
            requests.insert(name.to_owned(), Quantity(amount.to_string()));
        };
        if rng.chance(70) {
            let amount = rng.between(0, 2).min(left);
            left -= amount;
            ask(RESOURCE, amount);
        }
        if left > 0 && rng.chance(25) {
            left -= 1;
            ask(&implicit, 1);
        }
        if rng.chance(3) {
            ask("example.com/nowhere", 1);
        }
        core::Container {
            name: name.to_owned(),
            resources: Some(core::ResourceRequirements {
                limits: Some(requests.clone()),
                requests: Some(requests),
                ..Default::default()
            }),
            restart_policy: restart_policy.map(str::to_owned),
            ..Default::default()
        }
    };
    let mut spec = core::PodSpec::default();
    if rng.chance(40) {
        let mut init = Vec::new();
        for number in 0..rng.between(1, 2) {
            let sidecar = rng.chance(35).then_some("Always");
            init.push(container(rng, &format!("init-{number}"), sidecar));
        }
        spec.init_containers = Some(init);
    }
    for number in 0..rng.between(1, 2) {
        spec.containers.push(container(rng, &format!("main-{number}"), None));
    }
    core::Pod { metadata: namespaced("pod"), spec: Some(spec), status: None }
}
