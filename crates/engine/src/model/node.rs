//! A node's description, and the class of equal nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::gpu::ModelId;
use crate::resources::Resources;

/// Index of a node in the columns of a [`crate::Cluster`]. Ids are assigned in the order of
/// addition and not reused. Ties between nodes go to the lower id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Nodes.
pub type NodeSet = BTreeSet<NodeId>;

/// Index of a class of nodes that differ only in name and topology.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

/// Up to 64 node properties that pods may need or must tolerate. The builder of the cluster assigns
/// a bit to each selector and each taint in use.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct FeatureMask(pub u64);

/// A node as it is described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// Name.
    pub name: Arc<str>,
    /// The class of equal nodes.
    pub class: NodeClass,
    /// Labels by key; those that name levels of the topology matter here.
    pub labels: BTreeMap<String, String>,
}

/// The common properties of a class of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeClass {
    /// Plain resources for pods.
    pub capacity: Resources,
    /// GPUs.
    pub gpus: u16,
    /// Their model. Of no meaning without GPUs.
    pub model: ModelId,
    /// Links between the GPUs.
    pub links: Links,
    /// Properties that pods may need.
    pub features: FeatureMask,
    /// Properties that keep pods away which do not tolerate them.
    pub taints: FeatureMask,
    /// Price of the whole node in cents per hour.
    pub cents_per_hour: u32,
    /// Power of the CPUs of the empty node in watts.
    pub idle_watts: u32,
    /// Power of the CPUs of the full node in watts.
    pub full_watts: u32,
    /// Physical cores of one CPU package. A package draws full power as soon as a pod uses any of
    /// it. 0: all cores of the node are in one package.
    pub package_cores: u16,
    /// Chance that the node fails within an hour, in parts per million.
    pub hazard_ppm: u32,
}

/// Links between the GPUs of a node: for each level the group of each GPU. Levels go from the
/// loosest (NUMA node) to the tightest (PCIe switch, NVLink island). Empty if all GPUs are equally
/// near, as behind one NVSwitch.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Links(pub Vec<Vec<u8>>);

impl FeatureMask {
    /// None.
    pub const NONE: Self = Self(0);

    /// Whether all of `wanted` are here.
    pub fn has_all(self, wanted: Self) -> bool {
        wanted.0 & !self.0 == 0
    }
}

impl Links {
    /// Whether all GPUs are equally near.
    pub fn is_flat(&self) -> bool {
        self.0.is_empty()
    }

    /// Distance of two GPUs: 0 in one group of the tightest level, plus one for each level that
    /// separates them.
    pub fn distance(&self, a: usize, b: usize) -> u32 {
        let parted = |level: &&Vec<u8>| level.get(a) != level.get(b);
        u32::try_from(self.0.iter().filter(parted).count()).unwrap_or(u32::MAX)
    }
}
