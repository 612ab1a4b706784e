//! A node as it is described, and what makes two nodes alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::gpu::ModelId;
use crate::resources::Resources;

/// Index of a node in the columns of a [`crate::Cluster`]. Ids are given in the order in which
/// nodes are added and not reused; ties between nodes go to the lower id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// Index of a class of nodes that differ in name and place only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

/// Up to 64 properties of nodes that pods may need or must tolerate. Who builds the cluster gives
/// each selector and each taint that occurs a bit.
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
    /// What makes it like or unlike others.
    pub class: NodeClass,
    /// Labels by key; those that name levels of the topology matter here.
    pub labels: BTreeMap<String, String>,
}

/// What nodes of a class have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeClass {
    /// What pods may take of plain resources.
    pub capacity: Resources,
    /// GPUs.
    pub gpus: u16,
    /// Their model. Of no meaning without GPUs.
    pub model: ModelId,
    /// How the GPUs hang together.
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
    /// Physical cores of one of its CPU packages, of which each draws full power as soon as a pod has
    /// any of it; 0: all of the node's cores are in one package.
    pub package_cores: u16,
    /// Chance that the node fails within an hour, in parts per million.
    pub hazard_ppm: u32,
}

/// How the GPUs of a node hang together: for each level from the loosest (NUMA node) to the
/// tightest (PCIe switch, NVLink island) the group of each GPU. Empty where all GPUs are equally
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

    /// How far two GPUs are apart: 0 in one group of the tightest level, one more for each level
    /// that parts them.
    pub fn distance(&self, a: usize, b: usize) -> u32 {
        let parted = |level: &&Vec<u8>| level.get(a) != level.get(b);
        u32::try_from(self.0.iter().filter(parted).count()).unwrap_or(u32::MAX)
    }
}
