//! Volumes and disruption budgets.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use serde::Deserialize;

use super::affinity::{self, WireSelector};
use super::{Reader, WatchedType, WireMeta, filled};
use crate::objects::{
    BindingMode, Budget, CsiNode, Meta, PersistentVolume, StorageClass, VolumeClaim,
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
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireVolumeSpec {
    node_affinity: Option<core::VolumeNodeAffinity>,
    csi: Option<WireCsi>,
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
        let volume = filled(spec.volume_name).filter(|_| phase.as_deref() == Some("Bound"));
        let class = meta.annotations.get(OLD_CLASS).cloned().or(spec.storage_class_name);
        Some(Self { volume, class, access_modes: spec.access_modes.unwrap_or_default(), meta })
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
        Some(Self {
            meta: wire.metadata.read(reader),
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
        Some(Self { meta: wire.metadata.read(reader), binding })
    }

    fn from_meta(meta: Meta) -> Self {
        Self { meta, ..Self::default() }
    }

    fn meta(&self) -> &Meta {
        &self.meta
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
