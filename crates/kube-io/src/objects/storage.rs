//! Volumes, disruption budgets, and objects that are known by their kind only.

use std::collections::BTreeMap;

use octavo_dra::NodeSelector;

use super::{LabelSelector, Meta};

/// A `PersistentVolumeClaim`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeClaim {
    /// Metadata.
    pub meta: Meta,
    /// Name of the volume it is bound to (`spec.volumeName`, with phase `Bound`).
    pub volume: Option<String>,
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
    /// Nodes that can reach it; `None`: all.
    pub node_affinity: Option<NodeSelector>,
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

/// A `CSINode`: how many volumes of each driver a node can have attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsiNode {
    /// Metadata; named like the node.
    pub meta: Meta,
    /// Most volumes by driver; `None`: no limit.
    pub limits: BTreeMap<String, Option<u32>>,
}

/// A `PodDisruptionBudget`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Metadata.
    pub meta: Meta,
    /// Pods it is for; `None`: none.
    pub selector: Option<LabelSelector>,
    /// How many more may be disrupted now (`status.disruptionsAllowed`).
    pub allowed: i32,
    /// Names of pods whose eviction was granted and is not seen yet (`status.disruptedPods`).
    pub disrupted: Vec<String>,
}

/// An object of a kind that may or may not be served: a pod group, a workload that owns pods, a
/// placement policy.
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
