//! Claims, classes and slices.
//!
//! The conversions in `claims` and `slices` read what allocators use. A claim is never skipped,
//! because its devices must stay allocated.

use k8s_openapi::api::resource::v1 as api;
use octavo_dra::{Class, Quantity};
use serde::Deserialize;

use super::{Reader, WatchedType, WireMeta, filled};
use crate::claims::{claim_from_api, class_from_api};
use crate::objects::{
    Claim, ClaimConfig, Consumer, DeviceClass, DeviceConditions, Meta, ResourceSlice,
};

/// Marks claims that a scheduler made for extended resources.
const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

#[derive(Debug, Deserialize)]
pub(crate) struct WireClaim {
    #[serde(default)]
    metadata: WireMeta,
    #[serde(default)]
    spec: api::ResourceClaimSpec,
    status: Option<api::ResourceClaimStatus>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireClass {
    #[serde(default)]
    metadata: WireMeta,
    #[serde(default)]
    spec: api::DeviceClassSpec,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireSlice {
    #[serde(default)]
    metadata: WireMeta,
    #[serde(default)]
    spec: api::ResourceSliceSpec,
}

impl WatchedType for Claim {
    type Wire = WireClaim;

    fn read(wire: WireClaim, reader: &mut Reader) -> Option<Self> {
        let meta = wire.metadata.read(reader);
        let mut object = api::ResourceClaim {
            metadata: object_meta(&meta),
            spec: wire.spec,
            status: wire.status,
        };
        hold_whole(&mut object, reader);
        let (claim, fault) = match claim_from_api(&object) {
            Ok(claim) => (claim, None),
            Err(error) => {
                let fault = error.to_string();
                reader.fault(format!("{fault}; it is not allocated, and keeps its allocation"));
                object.spec.devices = None;
                (claim_from_api(&object).unwrap_or_default(), Some(fault))
            }
        };
        let devices = object.spec.devices.as_ref();
        let status = object.status.unwrap_or_default();
        let allocation = status.allocation.as_ref();
        let results = allocation.and_then(|allocation| allocation.devices.as_ref());
        let results = results.and_then(|devices| devices.results.as_deref()).unwrap_or_default();
        let statuses = status.devices.as_deref().unwrap_or_default();
        let config = devices.and_then(|devices| devices.config.as_deref()).unwrap_or_default();
        let consumers = status.reserved_for.iter().flatten();
        Some(Self {
            claim,
            fault,
            config: config.iter().filter_map(claim_config).collect(),
            conditions: results.iter().filter_map(|result| awaited(result, statuses)).collect(),
            allocated: allocation
                .and_then(|allocation| allocation.allocation_timestamp.as_ref())
                .map(|time| time.0.as_second()),
            reserved_for: consumers
                .map(|consumer| Consumer {
                    api_group: consumer.api_group.clone().unwrap_or_default(),
                    resource: consumer.resource.clone(),
                    name: consumer.name.clone(),
                    uid: consumer.uid.as_str().into(),
                })
                .collect(),
            is_extended: meta.annotations.get(EXTENDED).is_some_and(|value| value == "true"),
            meta,
        })
    }

    fn from_meta(meta: Meta) -> Self {
        Self { meta, ..Self::default() }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// The metadata that the conversions use.
fn object_meta(meta: &Meta) -> k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
    k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
        namespace: filled(Some(meta.name.namespace.to_string())),
        name: Some(meta.name.name.to_string()),
        uid: Some(meta.uid.to_string()),
        ..Default::default()
    }
}

/// A share with a malformed size counts as the whole device; a malformed node selector as none.
fn hold_whole(object: &mut api::ResourceClaim, reader: &mut Reader) {
    let allocation = object.status.as_mut().and_then(|status| status.allocation.as_mut());
    let Some(allocation) = allocation else { return };
    let results = allocation.devices.as_mut().and_then(|devices| devices.results.as_mut());
    for result in results.into_iter().flatten() {
        let mut amounts = result.consumed_capacity.iter().flatten();
        let is_unread = amounts.any(|(_, amount)| amount.0.parse::<Quantity>().is_err());
        if is_unread {
            reader.fault(format!(
                "a consumed capacity of device {}/{}/{} is not a quantity; treated as the whole device",
                result.driver, result.pool, result.device
            ));
            result.consumed_capacity = None;
            result.share_id = None;
        }
    }
    if let Some(selector) = &mut allocation.node_selector {
        let of = "status.allocation.nodeSelector";
        let read = super::affinity::node_selector(selector, of, reader);
        *selector = crate::slices::node_selector_to_api(&read);
    }
}

fn claim_config(config: &api::DeviceClaimConfiguration) -> Option<ClaimConfig> {
    let opaque = config.opaque.as_ref()?;
    Some(ClaimConfig {
        requests: config.requests.clone().unwrap_or_default(),
        driver: opaque.driver.clone(),
        parameters: opaque.parameters.0.clone(),
    })
}

/// The binding conditions of an allocated device and their state.
fn awaited(
    result: &api::DeviceRequestAllocationResult,
    statuses: &[api::AllocatedDeviceStatus],
) -> Option<DeviceConditions> {
    let awaited = result.binding_conditions.clone().unwrap_or_default();
    let failures = result.binding_failure_conditions.clone().unwrap_or_default();
    if awaited.is_empty() && failures.is_empty() {
        return None;
    }
    let status = statuses.iter().find(|status| {
        (&status.driver, &status.pool, &status.device)
            == (&result.driver, &result.pool, &result.device)
            && status.share_id == result.share_id
    });
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let holding = conditions.iter().filter(|condition| condition.status == "True");
    Some(DeviceConditions {
        driver: result.driver.clone(),
        pool: result.pool.clone(),
        device: result.device.clone(),
        awaited,
        failures,
        holding: holding
            .map(|condition| (condition.type_.clone(), condition.message.clone()))
            .collect(),
    })
}

impl WatchedType for DeviceClass {
    type Wire = WireClass;

    /// A class with unreadable selectors matches no device.
    fn read(wire: WireClass, reader: &mut Reader) -> Option<Self> {
        let meta = wire.metadata.read(reader);
        let object = api::DeviceClass { metadata: object_meta(&meta), spec: wire.spec };
        let class = class_from_api(&object).unwrap_or_else(|error| {
            reader.fault(format!("{error}; it selects no device"));
            Class {
                name: meta.name.name.to_string(),
                selectors: vec!["false".to_owned()],
                extended_resource: object.spec.extended_resource_name.clone(),
            }
        });
        let config = object.spec.config.iter().flatten();
        let config = config.filter_map(|config| config.opaque.as_ref()).map(|opaque| ClaimConfig {
            requests: Vec::new(),
            driver: opaque.driver.clone(),
            parameters: opaque.parameters.0.clone(),
        });
        Some(Self { class, config: config.collect(), meta })
    }

    fn from_meta(meta: Meta) -> Self {
        Self { meta, ..Self::default() }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl WatchedType for ResourceSlice {
    type Wire = WireSlice;

    /// An unreadable slice is absent, which makes its pool incomplete rather than smaller.
    fn read(wire: WireSlice, reader: &mut Reader) -> Option<Self> {
        let meta = wire.metadata.read(reader);
        let mut object = api::ResourceSlice { metadata: object_meta(&meta), spec: wire.spec };
        // The API says: "Consumers must treat unknown effects like None".
        for device in object.spec.devices.iter_mut().flatten() {
            for taint in device.taints.iter_mut().flatten() {
                if !matches!(taint.effect.as_str(), "None" | "NoSchedule" | "NoExecute") {
                    reader.fault(format!(
                        "device {} has a taint with the unknown effect {:?}; treated as None",
                        device.name, taint.effect
                    ));
                    "None".clone_into(&mut taint.effect);
                }
            }
        }
        match crate::slices::from_api(&object) {
            Ok(slice) => Some(Self { meta, slice }),
            Err(error) => {
                let name = &meta.name;
                reader.fault(format!("{name}: {error}; its pool counts as incomplete"));
                None
            }
        }
    }

    fn from_meta(meta: Meta) -> Self {
        Self { meta, slice: octavo_dra::Slice::default() }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
