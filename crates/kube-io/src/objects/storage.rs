//! Volumes, disruption budgets, and objects of kinds that this crate does not know.

use std::collections::BTreeMap;

use std::sync::Arc;

use octavo_dra::NodeSelector;

use super::{LabelSelector, Meta, ObjectName};

/// A `PersistentVolumeClaim`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeClaim {
    /// Metadata.
    pub meta: Meta,
    /// Name of its bound volume (`spec.volumeName`, with phase `Bound`).
    pub volume: Option<String>,
    /// Whether it names a volume, bound or not.
    pub is_prebound: bool,
    /// Bytes that it requests.
    pub requested: Option<i128>,
    /// Labels of the volumes that may serve it.
    pub selector: Option<LabelSelector>,
    /// Whether it wants a block device (`volumeMode: Block`).
    pub is_block: bool,
    /// Its `VolumeAttributesClass`.
    pub attributes_class: String,
    /// Its storage class.
    pub class: Option<String>,
    /// Access modes.
    pub access_modes: Vec<String>,
}

/// A `PersistentVolume`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PersistentVolume {
    /// Metadata.
    pub meta: Meta,
    /// Nodes that can reach it; `None` for all.
    pub node_affinity: Option<NodeSelector>,
    /// Its size in bytes.
    pub capacity: i128,
    /// Access modes.
    pub access_modes: Vec<String>,
    /// Its storage class.
    pub class: Option<String>,
    /// Whether it is a block device (`volumeMode: Block`).
    pub is_block: bool,
    /// Its `VolumeAttributesClass`.
    pub attributes_class: String,
    /// The claim that it is bound to or reserved for. An empty UID matches any claim of that name.
    pub claim: Option<(ObjectName, Arc<str>)>,
    /// Whether it is free (phase `Available`).
    pub is_available: bool,
    /// CSI driver and volume handle, if it is a CSI volume.
    pub csi: Option<(String, String)>,
}

/// A `StorageClass`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageClass {
    /// Metadata.
    pub meta: Meta,
    /// When its volumes are bound.
    pub binding: BindingMode,
    /// The provisioner of its volumes.
    pub provisioner: String,
    /// Labels and values of the nodes for which volumes can be provisioned. A node must match one of
    /// the lists in full; none: all nodes.
    pub allowed_topologies: Vec<Vec<(String, Vec<String>)>>,
}

/// A `CSIDriver`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiDriver {
    /// Metadata.
    pub meta: Meta,
    /// Whether its free capacity is published as `CSIStorageCapacity`.
    pub has_capacity: bool,
}

/// A `CSIStorageCapacity`: what a storage class can still provision for some nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiCapacity {
    /// Metadata.
    pub meta: Meta,
    /// The storage class.
    pub class: String,
    /// Labels of the nodes; `None` for no nodes.
    pub nodes: Option<LabelSelector>,
    /// Bytes of the largest volume; `None` if unknown, which serves no claim.
    pub most: Option<i128>,
}

/// When volumes of a storage class are bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BindingMode {
    /// At once.
    #[default]
    Immediate,
    /// When a pod that uses them is placed.
    WaitForFirstConsumer,
}

/// A `CSINode`: the limit of attached volumes of each driver on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiNode {
    /// Metadata; named like the node.
    pub meta: Meta,
    /// Limit of volumes by driver; `None` for no limit.
    pub limits: BTreeMap<String, Option<u32>>,
}

/// A `PodDisruptionBudget`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Metadata.
    pub meta: Meta,
    /// Selected pods; `None` for no pods.
    pub selector: Option<LabelSelector>,
    /// Number of pods that may be disrupted now (`status.disruptionsAllowed`).
    pub allowed: i32,
    /// Names of pods whose eviction was granted but not yet observed (`status.disruptedPods`).
    pub disrupted: Vec<String>,
}

/// An object of an optional kind: a pod group, a workload that owns pods, or a placement policy.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WatchedObject {
    /// `apiVersion`, such as `jobset.x-k8s.io/v1alpha2`.
    pub api_version: String,
    /// Kind.
    pub kind: String,
    /// Metadata.
    pub meta: Meta,
    /// `metadata.generation`.
    pub generation: i64,
    /// `spec`.
    pub spec: serde_json::Value,
    /// `status`.
    pub status: serde_json::Value,
}
