//! Conversion from the API's objects.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::resource::v1 as api;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use octavo_dra::{
    Allocation, AllocationResult, Ask, Claim, Class, Constraint, Count, DeviceRequest, Node,
    Quantity, Request, Rule, TaintEffect, Toleration,
};

use super::ClaimError;
use crate::slices::node_selector_from_api;

/// Reads a claim, with the defaults of the API server.
pub fn claim_from_api(claim: &api::ResourceClaim) -> Result<Claim, ClaimError> {
    let metadata = &claim.metadata;
    let devices = claim.spec.devices.as_ref();
    let requests = devices.and_then(|devices| devices.requests.as_ref()).into_iter().flatten();
    let constraints = devices.and_then(|devices| devices.constraints.as_ref());
    let constraints = constraints.into_iter().flatten().enumerate();
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    Ok(Claim {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
        uid: metadata.uid.clone().unwrap_or_default(),
        requests: requests.map(request_from_api).collect::<Result<_, _>>()?,
        constraints: constraints
            .map(|(index, constraint)| constraint_from_api(index, constraint))
            .collect::<Result<_, _>>()?,
        allocation: allocation.map(allocation_from_api).transpose()?,
    })
}

/// Reads a device class.
pub fn class_from_api(class: &api::DeviceClass) -> Result<Class, ClaimError> {
    let name = class.metadata.name.clone().unwrap_or_default();
    Ok(Class {
        selectors: selectors_from_api(&format!("class {name}"), class.spec.selectors.as_deref())?,
        extended_resource: class.spec.extended_resource_name.clone(),
        name,
    })
}

/// Reads the part of a node that allocators use.
pub fn node_from_api(node: &core::Node) -> Node {
    Node {
        name: node.metadata.name.clone().unwrap_or_default(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
    }
}

fn request_from_api(request: &api::DeviceRequest) -> Result<Request, ClaimError> {
    let name = request.name.clone();
    let alternatives = request.first_available.as_deref().unwrap_or_default();
    let ask = match &request.exactly {
        Some(exactly) => Ask::Exactly(DeviceRequest {
            admin_access: exactly.admin_access == Some(true),
            ..device_request(
                &name,
                &exactly.device_class_name,
                exactly.selectors.as_deref(),
                exactly.allocation_mode.as_deref(),
                exactly.count,
                exactly.tolerations.as_deref(),
                exactly.capacity.as_ref(),
            )?
        }),
        None if alternatives.is_empty() => return Err(ClaimError::Request { request: name }),
        None => {
            let alternative = |alternative: &api::DeviceSubRequest| {
                let asked = device_request(
                    &format!("{name}/{}", alternative.name),
                    &alternative.device_class_name,
                    alternative.selectors.as_deref(),
                    alternative.allocation_mode.as_deref(),
                    alternative.count,
                    alternative.tolerations.as_deref(),
                    alternative.capacity.as_ref(),
                )?;
                Ok((alternative.name.clone(), asked))
            };
            let alternatives = alternatives.iter().map(alternative);
            Ask::FirstAvailable(alternatives.collect::<Result<_, ClaimError>>()?)
        }
    };
    Ok(Request { name, ask })
}

/// Reads the fields common to `ExactDeviceRequest` and `DeviceSubRequest`.
fn device_request(
    request: &str,
    class: &str,
    selectors: Option<&[api::DeviceSelector]>,
    mode: Option<&str>,
    count: Option<i64>,
    tolerations: Option<&[api::DeviceToleration]>,
    capacity: Option<&api::CapacityRequirements>,
) -> Result<DeviceRequest, ClaimError> {
    let of = format!("request {request}");
    let capacity = capacity.and_then(|capacity| capacity.requests.as_ref());
    let tolerations = tolerations.unwrap_or_default();
    Ok(DeviceRequest {
        class: class.to_owned(),
        selectors: selectors_from_api(&of, selectors)?,
        count: count_from_api(request, mode, count)?,
        admin_access: false,
        tolerations: tolerations.iter().filter_map(toleration_from_api).collect(),
        capacity: capacity.map(|amounts| quantities(&of, amounts)).transpose()?.unwrap_or_default(),
    })
}

fn count_from_api(
    request: &str,
    mode: Option<&str>,
    count: Option<i64>,
) -> Result<Count, ClaimError> {
    match mode.unwrap_or_default() {
        "" | "ExactCount" => {
            // The API server treats zero as unset.
            let count = count.filter(|count| *count != 0).unwrap_or(1);
            let count = u64::try_from(count)
                .map_err(|_| ClaimError::Count { request: request.to_owned(), count })?;
            Ok(Count::Exactly(count))
        }
        "All" => Ok(Count::All),
        other => Err(ClaimError::Mode { request: request.to_owned(), mode: other.to_owned() }),
    }
}

fn selectors_from_api(
    of: &str,
    selectors: Option<&[api::DeviceSelector]>,
) -> Result<Vec<String>, ClaimError> {
    let expression = |selector: &api::DeviceSelector| match &selector.cel {
        Some(cel) => Ok(cel.expression.clone()),
        None => Err(ClaimError::Selector { of: of.to_owned() }),
    };
    selectors.unwrap_or_default().iter().map(expression).collect()
}

/// `None` for a toleration that this version does not know: it tolerates nothing.
fn toleration_from_api(toleration: &api::DeviceToleration) -> Option<Toleration> {
    let value = match toleration.operator.as_deref().unwrap_or_default() {
        "" | "Equal" => Some(toleration.value.clone().unwrap_or_default()),
        "Exists" => None,
        _ => return None,
    };
    let effect = match toleration.effect.as_deref().unwrap_or_default() {
        "" => None,
        "None" => Some(TaintEffect::None),
        "NoSchedule" => Some(TaintEffect::NoSchedule),
        "NoExecute" => Some(TaintEffect::NoExecute),
        _ => return None,
    };
    let key = toleration.key.clone().filter(|key| !key.is_empty());
    Some(Toleration { key, value, effect, seconds: toleration.toleration_seconds })
}

fn constraint_from_api(
    index: usize,
    constraint: &api::DeviceConstraint,
) -> Result<Constraint, ClaimError> {
    let rule = match (&constraint.match_attribute, &constraint.distinct_attribute) {
        (Some(attribute), _) => Rule::Match(attribute.clone()),
        (None, Some(attribute)) => Rule::Distinct(attribute.clone()),
        (None, None) => return Err(ClaimError::Constraint { index }),
    };
    Ok(Constraint { requests: constraint.requests.clone().unwrap_or_default(), rule })
}

fn allocation_from_api(allocation: &api::AllocationResult) -> Result<Allocation, ClaimError> {
    let results = allocation.devices.as_ref().and_then(|devices| devices.results.as_ref());
    let result = |result: &api::DeviceRequestAllocationResult| {
        let of = format!("device {}/{}/{}", result.driver, result.pool, result.device);
        let consumed = result.consumed_capacity.as_ref();
        Ok(AllocationResult {
            request: result.request.clone(),
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            admin_access: result.admin_access == Some(true),
            share_id: result.share_id.clone(),
            consumed: consumed
                .map(|amounts| quantities(&of, amounts))
                .transpose()?
                .unwrap_or_default(),
        })
    };
    let nodes = allocation.node_selector.as_ref().map(node_selector_from_api);
    Ok(Allocation {
        results: results.into_iter().flatten().map(result).collect::<Result<_, ClaimError>>()?,
        nodes: nodes.transpose().map_err(ClaimError::Nodes)?,
    })
}

fn quantities(
    of: &str,
    amounts: &BTreeMap<String, ApiQuantity>,
) -> Result<BTreeMap<String, Quantity>, ClaimError> {
    let quantity = |(name, value): (&String, &ApiQuantity)| {
        let quantity = value.0.parse().map_err(|_| ClaimError::Quantity {
            of: of.to_owned(),
            name: name.clone(),
            value: value.0.clone(),
        })?;
        Ok((name.clone(), quantity))
    };
    amounts.iter().map(quantity).collect()
}
