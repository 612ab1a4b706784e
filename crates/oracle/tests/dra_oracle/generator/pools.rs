//! Pools and their slices: complete and incomplete, current and stale, valid and invalid.

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use octavo_testkit::Rng;

use super::scopes::{Scope, place};
use super::{DRIVERS, Plan, devices, named};

/// All slices of the cluster in random order.
pub(super) fn slices(rng: &mut Rng, plan: &Plan, nodes: &[core::Node]) -> Vec<api::ResourceSlice> {
    let mut slices = Vec::new();
    let drivers = if plan.second_driver { 2 } else { 1 };
    for (index, driver) in DRIVERS[..drivers].iter().enumerate() {
        for node in nodes {
            // Some nodes have no devices.
            if rng.chance(85) {
                let name = node.metadata.name.as_deref().unwrap_or_default();
                pool(rng, plan, nodes, driver, name, Scope::Node(name), &mut slices);
            }
        }
        if plan.cluster_pool && (index == 0 || rng.chance(40)) {
            let scopes = [Scope::All, Scope::Selector, Scope::PerDevice, Scope::Nodes];
            let scope = *rng.pick(&scopes);
            pool(rng, plan, nodes, driver, "fabric", scope, &mut slices);
        }
    }
    if plan.incomplete && !slices.is_empty() {
        let at = rng.below(slices.len());
        let (driver, pool) = {
            let spec: &api::ResourceSliceSpec = &slices[at].spec;
            (spec.driver.clone(), spec.pool.name.clone())
        };
        let of_pool = slices.iter_mut().map(|slice| &mut slice.spec);
        for spec in of_pool.filter(|spec| spec.driver == driver && spec.pool.name == pool) {
            spec.pool.resource_slice_count += 1;
        }
    }
    rng.shuffle(&mut slices);
    slices
}

/// Removes the node scope from a slice with devices; a later API version may express it
/// differently.
pub(super) fn remove_node_scope(slices: &mut [api::ResourceSlice]) {
    let lost = slices.iter_mut().map(|slice| &mut slice.spec).find(|spec| spec.devices.is_some());
    if let Some(spec) = lost {
        spec.node_name = None;
        spec.node_selector = None;
        spec.all_nodes = None;
        spec.per_device_node_selection = None;
    }
}

fn pool(
    rng: &mut Rng,
    plan: &Plan,
    nodes: &[core::Node],
    driver: &str,
    pool: &str,
    scope: Scope<'_>,
    slices: &mut Vec<api::ResourceSlice>,
) {
    // Counters of two drivers in pools of one name trigger a Kubernetes bug: divergences.rs.
    let with_counters = plan.counters && driver == DRIVERS[0];
    let sets = if with_counters { devices::counter_sets(rng) } else { Vec::new() };
    let mut contents: Vec<Content> = Vec::new();
    if sets.len() > 1 && rng.chance(30) {
        contents.extend(sets.iter().map(|set| Content::Counters(vec![set.clone()])));
    } else if !sets.is_empty() {
        contents.push(Content::Counters(sets.clone()));
    }
    let count = if plan.slices || scope == Scope::Nodes { rng.between(1, 3) } else { 1 };
    let mut number = 0;
    for _ in 0..count {
        let size = if count > 1 { rng.between(1, 2) } else { rng.between(2, 4) };
        let mut made = Vec::new();
        for _ in 0..size {
            made.push(devices::device(rng, plan, driver, &format!("dev-{number}"), &sets));
            number += 1;
        }
        contents.push(Content::Devices(made));
    }
    if plan.invalid && rng.chance(60) {
        invalidate(rng, &mut contents);
    }
    let generation = rng.between(2, 4) as i64;
    let total = contents.len() as i64;
    let mut add = |rng: &mut Rng, content: Content, generation: i64| {
        let mut spec = api::ResourceSliceSpec {
            driver: driver.to_owned(),
            pool: api::ResourcePool {
                name: pool.to_owned(),
                generation,
                resource_slice_count: total,
            },
            ..api::ResourceSliceSpec::default()
        };
        match content {
            Content::Devices(devices) => spec.devices = Some(devices),
            Content::Counters(sets) => spec.shared_counters = Some(sets),
        }
        place(rng, scope, nodes, &mut spec);
        // Names are not in creation order.
        let name = format!("{}-{pool}-{}", rng.word(&["a", "b", "c"]), slices.len());
        slices.push(api::ResourceSlice { metadata: named(&name), spec });
    };
    if plan.stale && rng.chance(60) {
        // Remains of an older generation, or an incomplete newer one.
        let older = rng.chance(80);
        for _ in 0..rng.between(1, 2) {
            let name = format!("dev-{}", rng.below(4));
            let stale = devices::device(rng, plan, driver, &name, &[]);
            let generation = if older { generation - 1 } else { generation + 1 };
            add(rng, Content::Devices(vec![stale]), generation);
        }
    }
    for content in contents {
        add(rng, content, generation);
    }
}

#[derive(Clone)]
enum Content {
    Devices(Vec<api::Device>),
    Counters(Vec<api::CounterSet>),
}

/// Violates a rule for pools.
fn invalidate(rng: &mut Rng, contents: &mut Vec<Content>) {
    let copied = contents.iter().rev().find_map(|content| match content {
        Content::Devices(devices) => devices.first().cloned(),
        Content::Counters(_) => None,
    });
    let Some(mut device) = copied else { return };
    if rng.chance(50) {
        // A duplicate name.
        contents.push(Content::Devices(vec![device]));
    } else {
        // A missing counter set or counter.
        "dev-x".clone_into(&mut device.name);
        let set = if rng.chance(50) { "set-0" } else { "nowhere" };
        device.consumes_counters = Some(vec![devices::consumption(set, &[("nothing", "1")])]);
        contents.push(Content::Devices(vec![device]));
    }
}
