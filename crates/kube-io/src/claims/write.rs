//! Conversion of requests and allocations to the API's form, as kube-scheduler writes them.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use octavo_dra::{
    Allocation, AllocationResult, Ask, Count, Device, DeviceRequest, Quantity, Request,
    TaintEffect, Toleration,
};

use crate::slices::node_selector_to_api;

/// Writes a request, for claims that a scheduler creates, such as the one for a pod's extended
/// resources.
pub fn request_to_api(request: &Request) -> api::DeviceRequest {
    let mut written = api::DeviceRequest { name: request.name.clone(), ..Default::default() };
    match &request.ask {
        Ask::Exactly(asked) => written.exactly = Some(exactly_to_api(asked)),
        Ask::FirstAvailable(alternatives) => {
            let alternative = |(name, asked): &(String, DeviceRequest)| {
                let asked = exactly_to_api(asked);
                api::DeviceSubRequest {
                    allocation_mode: asked.allocation_mode,
                    capacity: asked.capacity,
                    count: asked.count,
                    device_class_name: asked.device_class_name,
                    name: name.clone(),
                    selectors: asked.selectors,
                    tolerations: asked.tolerations,
                }
            };
            written.first_available = Some(alternatives.iter().map(alternative).collect());
        }
    }
    written
}

fn exactly_to_api(asked: &DeviceRequest) -> api::ExactDeviceRequest {
    let (mode, count) = match asked.count {
        // More than the API's integers hold is more than any node has.
        Count::Exactly(count) => ("ExactCount", Some(i64::try_from(count).unwrap_or(i64::MAX))),
        Count::All => ("All", None),
    };
    let selector = |expression: &String| api::DeviceSelector {
        cel: Some(api::CELDeviceSelector { expression: expression.clone() }),
    };
    let capacity = || api::CapacityRequirements { requests: Some(amounts(&asked.capacity)) };
    api::ExactDeviceRequest {
        admin_access: asked.admin_access.then_some(true),
        allocation_mode: Some(mode.to_owned()),
        capacity: (!asked.capacity.is_empty()).then(capacity),
        count,
        device_class_name: asked.class.clone(),
        selectors: listed(&asked.selectors, selector),
        tolerations: listed(&asked.tolerations, toleration_to_api),
    }
}

/// Writes a toleration of device taints.
pub fn toleration_to_api(toleration: &Toleration) -> api::DeviceToleration {
    let effect = toleration.effect.map(|effect| match effect {
        TaintEffect::None => "None",
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    });
    let operator = if toleration.value.is_some() { "Equal" } else { "Exists" };
    api::DeviceToleration {
        effect: effect.map(str::to_owned),
        key: toleration.key.clone(),
        operator: Some(operator.to_owned()),
        toleration_seconds: toleration.seconds,
        value: toleration.value.clone().filter(|value| !value.is_empty()),
    }
}

/// A list that is absent if it is empty, as in the API.
fn listed<T, U>(list: &[T], write: impl Fn(&T) -> U) -> Option<Vec<U>> {
    (!list.is_empty()).then(|| list.iter().map(write).collect())
}

fn amounts(amounts: &BTreeMap<String, Quantity>) -> BTreeMap<String, ApiQuantity> {
    let amount =
        |(name, amount): (&String, &Quantity)| (name.clone(), ApiQuantity(amount.to_string()));
    amounts.iter().map(amount).collect()
}

/// Writes the allocation of a claim. It contains the tolerations, the binding conditions, and the
/// configuration of class and claim for the drivers.
///
/// `device` finds the published device of a result. A result without one has no conditions.
pub fn allocation_to_api<'a>(
    allocation: &Allocation,
    claim: &api::ResourceClaim,
    classes: &[api::DeviceClass],
    device: impl Fn(&AllocationResult) -> Option<&'a Device>,
) -> api::AllocationResult {
    let requests = claim.spec.devices.as_ref().and_then(|devices| devices.requests.as_deref());
    let asked = asked(requests.unwrap_or_default(), &allocation.results);
    let results: Vec<_> = allocation
        .results
        .iter()
        .map(|result| served_result(result, asked.get(result.request.as_str()), device(result)))
        .collect();
    let config = configuration(claim, classes, &asked);
    api::AllocationResult {
        allocation_timestamp: None,
        devices: Some(api::DeviceAllocationResult {
            config: (!config.is_empty()).then_some(config),
            results: (!results.is_empty()).then_some(results),
        }),
        node_selector: allocation.nodes.as_ref().map(node_selector_to_api),
    }
}

/// A request that was allocated, or its chosen alternative.
struct Asked<'a> {
    /// Index of the request in the claim.
    index: usize,
    /// Name of the request without the alternative's.
    request: &'a str,
    class: &'a str,
    tolerations: Option<&'a Vec<api::DeviceToleration>>,
}

/// The allocated requests, by their names in results.
fn asked<'a>(
    requests: &'a [api::DeviceRequest],
    results: &[AllocationResult],
) -> BTreeMap<String, Asked<'a>> {
    let chosen: BTreeSet<&str> = results.iter().map(|result| result.request.as_str()).collect();
    let mut asked = BTreeMap::new();
    for (index, request) in requests.iter().enumerate() {
        if let Some(exactly) = &request.exactly {
            let served = Asked {
                index,
                request: &request.name,
                class: &exactly.device_class_name,
                tolerations: exactly.tolerations.as_ref(),
            };
            asked.insert(request.name.clone(), served);
        }
        for alternative in request.first_available.iter().flatten() {
            let name = format!("{}/{}", request.name, alternative.name);
            if chosen.contains(name.as_str()) {
                let served = Asked {
                    index,
                    request: &request.name,
                    class: &alternative.device_class_name,
                    tolerations: alternative.tolerations.as_ref(),
                };
                asked.insert(name, served);
            }
        }
    }
    asked
}

/// Writes an allocated device, without tolerations and binding conditions.
pub fn result_to_api(result: &AllocationResult) -> api::DeviceRequestAllocationResult {
    api::DeviceRequestAllocationResult {
        admin_access: result.admin_access.then_some(true),
        consumed_capacity: (!result.consumed.is_empty()).then(|| amounts(&result.consumed)),
        device: result.device.clone(),
        driver: result.driver.clone(),
        pool: result.pool.clone(),
        request: result.request.clone(),
        share_id: result.share_id.clone(),
        ..Default::default()
    }
}

fn served_result(
    result: &AllocationResult,
    asked: Option<&Asked<'_>>,
    device: Option<&Device>,
) -> api::DeviceRequestAllocationResult {
    let conditions = |list: &[String]| listed(list, Clone::clone);
    api::DeviceRequestAllocationResult {
        binding_conditions: device.and_then(|device| conditions(&device.binding_conditions)),
        binding_failure_conditions: device
            .and_then(|device| conditions(&device.binding_failure_conditions)),
        tolerations: asked
            .and_then(|asked| asked.tolerations)
            .map(|list| list.iter().map(with_operator).collect()),
        ..result_to_api(result)
    }
}

/// With the operator that the API server adds where there is none.
fn with_operator(toleration: &api::DeviceToleration) -> api::DeviceToleration {
    let operator = toleration.operator.clone().unwrap_or_else(|| "Equal".to_owned());
    api::DeviceToleration { operator: Some(operator), ..toleration.clone() }
}

/// The configuration: for each class once with all its requests, then the claim's own.
fn configuration(
    claim: &api::ResourceClaim,
    classes: &[api::DeviceClass],
    asked: &BTreeMap<String, Asked<'_>>,
) -> Vec<api::DeviceAllocationConfiguration> {
    let mut served: Vec<(&String, &Asked<'_>)> = asked.iter().collect();
    served.sort_by_key(|(_, asked)| asked.index);
    let mut configuration = Vec::new();
    let mut seen = BTreeSet::new();
    for (_, first) in &served {
        if !seen.insert(first.class) {
            continue;
        }
        let class = classes.iter().find(|c| c.metadata.name.as_deref() == Some(first.class));
        let same_class = served.iter().filter(|(_, asked)| asked.class == first.class);
        let names: Vec<String> = same_class.map(|(name, _)| (*name).clone()).collect();
        for config in class.and_then(|class| class.spec.config.as_ref()).into_iter().flatten() {
            configuration.push(api::DeviceAllocationConfiguration {
                opaque: config.opaque.clone(),
                requests: Some(names.clone()),
                source: "FromClass".to_owned(),
            });
        }
    }
    let configs = claim.spec.devices.as_ref().and_then(|devices| devices.config.as_ref());
    for config in configs.into_iter().flatten() {
        let entry = api::DeviceAllocationConfiguration {
            opaque: config.opaque.clone(),
            requests: config.requests.clone(),
            source: "FromClaim".to_owned(),
        };
        let named = config.requests.as_deref().unwrap_or_default();
        if named.is_empty() {
            configuration.push(entry);
            continue;
        }
        // One entry for each request that it applies to.
        let is_for = |name: &str, asked: &Asked<'_>| {
            named.iter().any(|named| named == name || named == asked.request)
        };
        let count = served.iter().filter(|(name, asked)| is_for(name, asked)).count();
        configuration.extend(std::iter::repeat_n(entry, count));
    }
    configuration
}
