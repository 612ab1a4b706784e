//! Allocated claims: whole devices, shares, and admin access.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use octavo_testkit::Rng;

use super::{Plan, devices, namespaced};

/// Claims of other pods.
pub(super) fn others(
    rng: &mut Rng,
    plan: &Plan,
    slices: &[api::ResourceSlice],
) -> Vec<api::ResourceClaim> {
    if !plan.allocated {
        return Vec::new();
    }
    let mut claims = Vec::new();
    let devices = slices.iter().flat_map(|slice| {
        slice.spec.devices.iter().flatten().map(move |device| (&slice.spec, device))
    });
    for (spec, device) in devices {
        if !rng.chance(22) {
            continue;
        }
        let shares = if is_shared(device) { rng.between(1, 2) } else { 1 };
        for _ in 0..shares {
            let name = format!("other-{}", claims.len());
            let mut given = result(rng, spec, device, &name);
            if rng.chance(15) {
                given.admin_access = Some(true);
            }
            claims.push(claim(&name, given, None));
        }
    }
    rng.shuffle(&mut claims);
    claims
}

/// An already allocated claim of the pod, which only has to be reachable.
pub(super) fn own(
    rng: &mut Rng,
    slices: &[api::ResourceSlice],
    nodes: &[core::Node],
) -> api::ResourceClaim {
    let name = "own-allocated";
    let with_devices: Vec<_> = slices.iter().filter(|slice| slice.spec.devices.is_some()).collect();
    let given = if with_devices.is_empty() {
        api::DeviceRequestAllocationResult {
            device: "gone".to_owned(),
            driver: super::DRIVERS[0].to_owned(),
            pool: "gone".to_owned(),
            request: "req-0".to_owned(),
            ..Default::default()
        }
    } else {
        let spec = &rng.pick(&with_devices).spec;
        let device = rng.pick(spec.devices.as_deref().unwrap_or_default());
        result(rng, spec, device, name)
    };
    let on_node = rng.chance(40).then(|| node_selector(rng.pick(nodes)));
    claim(name, given, on_node)
}

fn is_shared(device: &api::Device) -> bool {
    device.allow_multiple_allocations == Some(true)
}

fn result(
    rng: &mut Rng,
    spec: &api::ResourceSliceSpec,
    device: &api::Device,
    claim: &str,
) -> api::DeviceRequestAllocationResult {
    let mut given = api::DeviceRequestAllocationResult {
        device: device.name.clone(),
        driver: spec.driver.clone(),
        pool: spec.pool.name.clone(),
        request: "req-0".to_owned(),
        ..Default::default()
    };
    if is_shared(device) {
        let number: usize = claim.bytes().map(usize::from).sum();
        given.share_id = Some(format!("00000000-0000-4000-8000-{number:012}"));
        let mut consumed = BTreeMap::new();
        for (name, capacity) in device.capacity.iter().flatten() {
            let amounts: &[&'static str] = match name.as_str() {
                "memory" => &["1Gi", "2Gi", "4Gi", "6Gi", "8Gi"],
                _ => &["10", "12500m", "25", "50"],
            };
            let amount = rng.chance(90).then(|| devices::quantity(rng.word(amounts)));
            consumed.insert(name.clone(), amount.unwrap_or_else(|| capacity.value.clone()));
        }
        given.consumed_capacity = Some(consumed);
    }
    given
}

fn claim(
    name: &str,
    given: api::DeviceRequestAllocationResult,
    node_selector: Option<core::NodeSelector>,
) -> api::ResourceClaim {
    let exactly = api::ExactDeviceRequest {
        device_class_name: "all".to_owned(),
        admin_access: given.admin_access,
        ..Default::default()
    };
    let request = api::DeviceRequest {
        name: "req-0".to_owned(),
        exactly: Some(exactly),
        first_available: None,
    };
    api::ResourceClaim {
        metadata: namespaced(name),
        spec: api::ResourceClaimSpec {
            devices: Some(api::DeviceClaim { requests: Some(vec![request]), ..Default::default() }),
        },
        status: Some(api::ResourceClaimStatus {
            allocation: Some(api::AllocationResult {
                devices: Some(api::DeviceAllocationResult {
                    results: Some(vec![given]),
                    config: None,
                }),
                node_selector,
                ..Default::default()
            }),
            ..Default::default()
        }),
    }
}

fn node_selector(node: &core::Node) -> core::NodeSelector {
    core::NodeSelector {
        node_selector_terms: vec![core::NodeSelectorTerm {
            match_fields: Some(vec![core::NodeSelectorRequirement {
                key: "metadata.name".to_owned(),
                operator: "In".to_owned(),
                values: Some(vec![node.metadata.name.clone().unwrap_or_default()]),
            }]),
            ..Default::default()
        }],
    }
}
