//! Volumes and disruption budgets.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use octavo_dra::Quantity;
use serde::Deserialize;

use super::affinity::{self, WireSelector};
use super::{Reader, WatchedType, WireMeta, filled};
use crate::objects::{
    BindingMode, Budget, CsiCapacity, CsiDriver, CsiNode, Meta, ObjectName, PersistentVolume,
    StorageClass, VolumeClaim,
};

/// Annotation with the class of a volume claim, from before it was a field.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

#[derive(Debug, Deserialize)]
pub(crate) struct WireVolumeClaim {
    #[serde(default)]
    metadata: WireMeta,
    spec: Option<WireVolumeClaimSpec>,
    status: Option<WirePhase>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireVolumeClaimSpec {
    volume_name: Option<String>,
    storage_class_name: Option<String>,
    access_modes: Option<Vec<String>>,
    resources: Option<WireStorage>,
    selector: Option<WireSelector>,
    volume_mode: Option<String>,
    volume_attributes_class_name: Option<String>,
}

#[derive(Debug, Deserialize)]
struct WireStorage {
    requests: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
struct WirePhase {
    phase: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireVolume {
    #[serde(default)]
    metadata: WireMeta,
    spec: Option<WireVolumeSpec>,
    status: Option<WirePhase>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireVolumeSpec {
    node_affinity: Option<core::VolumeNodeAffinity>,
    csi: Option<WireCsi>,
    capacity: Option<BTreeMap<String, String>>,
    access_modes: Option<Vec<String>>,
    storage_class_name: Option<String>,
    volume_mode: Option<String>,
    volume_attributes_class_name: Option<String>,
    claim_ref: Option<WireClaimRef>,
}

#[derive(Debug, Deserialize)]
struct WireClaimRef {
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    uid: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCsi {
    #[serde(default)]
    driver: String,
    #[serde(default)]
    volume_handle: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireStorageClass {
    #[serde(default)]
    metadata: WireMeta,
    volume_binding_mode: Option<String>,
    #[serde(default)]
    provisioner: String,
    allowed_topologies: Option<Vec<WireTopologyTerm>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireTopologyTerm {
    match_label_expressions: Option<Vec<WireTopologyLabel>>,
}

#[derive(Debug, Deserialize)]
struct WireTopologyLabel {
    #[serde(default)]
    key: String,
    values: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireCsiDriver {
    #[serde(default)]
    metadata: WireMeta,
    spec: Option<WireCsiDriverSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireCsiDriverSpec {
    storage_capacity: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireCsiCapacity {
    #[serde(default)]
    metadata: WireMeta,
    #[serde(default)]
    storage_class_name: String,
    node_topology: Option<WireSelector>,
    capacity: Option<String>,
    maximum_volume_size: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireCsiNode {
    #[serde(default)]
    metadata: WireMeta,
    spec: Option<WireCsiNodeSpec>,
}

#[derive(Debug, Default, Deserialize)]
struct WireCsiNodeSpec {
    drivers: Option<Vec<WireDriver>>,
}

#[derive(Debug, Deserialize)]
struct WireDriver {
    #[serde(default)]
    name: String,
    allocatable: Option<WireCount>,
}

#[derive(Debug, Deserialize)]
struct WireCount {
    count: Option<i64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WireBudget {
    #[serde(default)]
    metadata: WireMeta,
    spec: Option<WireBudgetSpec>,
    status: Option<WireBudgetStatus>,
}

#[derive(Debug, Default, Deserialize)]
struct WireBudgetSpec {
    selector: Option<WireSelector>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireBudgetStatus {
    disruptions_allowed: Option<i32>,
    disrupted_pods: Option<BTreeMap<String, Option<String>>>,
}

impl WatchedType for VolumeClaim {
    type Wire = WireVolumeClaim;

    fn read(wire: WireVolumeClaim, reader: &mut Reader) -> Option<Self> {
        let meta = wire.metadata.read(reader);
        let spec = wire.spec.unwrap_or_default();
        let phase = wire.status.and_then(|status| status.phase);
        let volume = filled(spec.volume_name);
        let is_prebound = volume.is_some();
        let volume = volume.filter(|_| phase.as_deref() == Some("Bound"));
        let class = meta.annotations.get(OLD_CLASS).cloned().or(spec.storage_class_name);
        let requests = spec.resources.and_then(|resources| resources.requests);
        Some(Self {
            volume,
            is_prebound,
            class,
            access_modes: spec.access_modes.unwrap_or_default(),
            requested: requests
                .and_then(|requests| bytes(requests.get("storage")?, "spec.resources", reader)),
            selector: spec.selector.map(WireSelector::read),
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
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

impl WatchedType for PersistentVolume {
    type Wire = WireVolume;

    fn read(wire: WireVolume, reader: &mut Reader) -> Option<Self> {
        let spec = wire.spec.unwrap_or_default();
        let required = spec.node_affinity.and_then(|affinity| affinity.required);
        let meta = wire.metadata.read(reader);
        let class = meta.annotations.get(OLD_CLASS).cloned().or(spec.storage_class_name);
        let size = spec.capacity.as_ref().and_then(|capacity| capacity.get("storage"));
        let claim = spec
            .claim_ref
            .map(|claim| (ObjectName::new(claim.namespace, claim.name), Arc::from(claim.uid)));
        Some(Self {
            meta,
            capacity: size.and_then(|size| bytes(size, "spec.capacity", reader)).unwrap_or(0),
            access_modes: spec.access_modes.unwrap_or_default(),
            class,
            is_block: spec.volume_mode.as_deref() == Some("Block"),
            attributes_class: spec.volume_attributes_class_name.unwrap_or_default(),
            claim,
            is_available: wire
                .status
                .and_then(|status| status.phase)
                .is_some_and(|phase| phase == "Available"),
            node_affinity: required
                .map(|required| affinity::node_selector(&required, "spec.nodeAffinity", reader)),
            csi: spec.csi.map(|csi| (csi.driver, csi.volume_handle)),
        })
    }

    fn from_meta(meta: Meta) -> Self {
        Self { meta, ..Self::default() }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl WatchedType for StorageClass {
    type Wire = WireStorageClass;

    fn read(wire: WireStorageClass, reader: &mut Reader) -> Option<Self> {
        let binding = match wire.volume_binding_mode.as_deref() {
            None | Some("" | "Immediate") => BindingMode::Immediate,
            Some("WaitForFirstConsumer") => BindingMode::WaitForFirstConsumer,
            Some(other) => {
                reader.fault(format!(
                    "volumeBindingMode {other:?} is unknown; treated as WaitForFirstConsumer"
                ));
                BindingMode::WaitForFirstConsumer
            }
        };
        let terms = wire.allowed_topologies.unwrap_or_default().into_iter().map(|term| {
            let labels = term.match_label_expressions.unwrap_or_default().into_iter();
            labels.map(|label| (label.key, label.values.unwrap_or_default())).collect()
        });
        Some(Self {
            meta: wire.metadata.read(reader),
            binding,
            provisioner: wire.provisioner,
            allowed_topologies: terms.collect(),
        })
    }

    fn from_meta(meta: Meta) -> Self {
        Self { meta, ..Self::default() }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl WatchedType for CsiDriver {
    type Wire = WireCsiDriver;

    fn read(wire: WireCsiDriver, reader: &mut Reader) -> Option<Self> {
        let spec = wire.spec.unwrap_or_default();
        let has_capacity = spec.storage_capacity.unwrap_or(false);
        Some(Self { meta: wire.metadata.read(reader), has_capacity })
    }

    fn from_meta(meta: Meta) -> Self {
        Self { meta, ..Self::default() }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl WatchedType for CsiCapacity {
    type Wire = WireCsiCapacity;

    fn read(wire: WireCsiCapacity, reader: &mut Reader) -> Option<Self> {
        let most = wire.maximum_volume_size.or(wire.capacity);
        Some(Self {
            meta: wire.metadata.read(reader),
            class: wire.storage_class_name,
            nodes: wire.node_topology.map(WireSelector::read),
            most: most.and_then(|most| bytes(&most, "capacity", reader)),
        })
    }

    fn from_meta(meta: Meta) -> Self {
        Self { meta, ..Self::default() }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

/// Bytes of a quantity. An unreadable one is reported.
fn bytes(text: &str, of: &str, reader: &mut Reader) -> Option<i128> {
    match text.parse::<Quantity>() {
        Ok(quantity) => Some(quantity.value()),
        Err(error) => {
            reader.fault(format!("{of}: {text:?} is no quantity: {error}"));
            None
        }
    }
}

impl WatchedType for CsiNode {
    type Wire = WireCsiNode;

    fn read(wire: WireCsiNode, reader: &mut Reader) -> Option<Self> {
        let drivers = wire.spec.unwrap_or_default().drivers.unwrap_or_default();
        let limit = |driver: WireDriver| {
            let count = driver.allocatable.and_then(|allocatable| allocatable.count);
            // A negative count means zero.
            let count = count.map(|count| u32::try_from(count.max(0)).unwrap_or(u32::MAX));
            (driver.name, count)
        };
        Some(Self {
            meta: wire.metadata.read(reader),
            limits: drivers.into_iter().map(limit).collect(),
        })
    }

    fn from_meta(meta: Meta) -> Self {
        Self { meta, ..Self::default() }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

impl WatchedType for Budget {
    type Wire = WireBudget;

    fn read(wire: WireBudget, reader: &mut Reader) -> Option<Self> {
        let status = wire.status.unwrap_or_default();
        let disrupted = status.disrupted_pods.unwrap_or_default();
        Some(Self {
            meta: wire.metadata.read(reader),
            selector: wire.spec.and_then(|spec| spec.selector).map(WireSelector::read),
            allowed: status.disruptions_allowed.unwrap_or(0),
            disrupted: disrupted.into_keys().collect(),
        })
    }

    fn from_meta(meta: Meta) -> Self {
        Self { meta, ..Self::default() }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}
