//! A world as a document: recorded from a live cluster or generated, and read back to the same
//! decisions.
//!
//! The records here are separate from the types that decide, wherever names stand for ids. The rest
//! is written as it is. A change of these types must not make recorded snapshots unreadable.
//! Default values are omitted.

mod packing;
mod pins;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;

use octavo_health::risk::RiskClass;
use serde::{Deserialize, Serialize};

use crate::gang::NodeLimit;
use crate::gpu::GpuModel;
use crate::node::{FeatureMask, Links};
use crate::resources::Resources;
use crate::shape::GpuDemand;
use crate::topology::Level;

pub use packing::{
    ChurnRecord, CountRecord, LearningRecord, ModelInputsRecord, PACKING_VERSION, PackingRecord,
    SizeRecord,
};
pub use pins::nodes_named;
pub use read::SnapshotError;
pub(crate) use read::{any_shape, model_of, models};
pub(crate) use write::shape_record;

/// The version of the form that this program writes and reads.
pub const VERSION: u32 = 1;

/// A cluster, what runs in it and what waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Snapshot {
    /// Version of the form.
    pub version: u32,
    /// Whether the cluster was made up and not recorded.
    #[serde(default, skip_serializing_if = "is_default")]
    pub synthetic: bool,
    /// Levels of the topology, loosest first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub levels: Vec<Level>,
    /// GPU models.
    #[serde(default, skip_serializing_if = "is_default")]
    pub models: Vec<GpuModel>,
    /// Node classes, by a name that nodes refer to.
    pub classes: BTreeMap<String, ClassRecord>,
    /// Nodes.
    pub nodes: Vec<NodeRecord>,
    /// Tenants and their weights. A tenant that is not listed has weight 1.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tenants: BTreeMap<String, u32>,
    /// How many more members may be evicted or moved under each limit, by its name.
    #[serde(default, skip_serializing_if = "is_default")]
    pub eviction_limits: BTreeMap<String, u32>,
    /// Workloads that run, in the order in which they came.
    #[serde(default, skip_serializing_if = "is_default")]
    pub running: Vec<WorkloadRecord>,
    /// Waiting gangs, in the order in which they are placed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub waiting: Vec<GangRecord>,
    /// The learned state of the packing policy. [`Snapshot::of`] leaves it empty; the owner of the
    /// policy fills it with [`crate::packing::price::PricePolicy::saved`] and reads it with
    /// [`crate::packing::price::PricePolicy::restored`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub packing: Option<PackingRecord>,
}

/// The class of a node; see [`crate::node::NodeClass`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClassRecord {
    /// Capacity for pods.
    pub capacity: Resources,
    /// GPUs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpus: u16,
    /// Name of their model.
    #[serde(default, skip_serializing_if = "is_default")]
    pub model: Option<String>,
    /// Links between the GPUs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub links: Links,
    /// Properties that pods may need.
    #[serde(rename = "marks", default, skip_serializing_if = "is_default")]
    pub features: FeatureMask,
    /// Properties that pods must tolerate.
    #[serde(rename = "refuses", default, skip_serializing_if = "is_default")]
    pub taints: FeatureMask,
    /// Price of the node in cents per hour.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cents_per_hour: u32,
    /// Power of the CPUs of the empty node in watts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub idle_watts: u32,
    /// Power of the CPUs of the full node in watts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub full_watts: u32,
    /// Physical cores of one CPU package; 0: all are in one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub package_cores: u16,
    /// Chance of a failure within an hour in parts per million.
    #[serde(default, skip_serializing_if = "is_default")]
    pub hazard_ppm: u32,
}

/// A node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeRecord {
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: String,
    /// Its labels.
    #[serde(default, skip_serializing_if = "is_default")]
    pub labels: BTreeMap<String, String>,
    /// Whether it takes no new pods.
    #[serde(default, skip_serializing_if = "is_default")]
    pub closed: bool,
    /// GPUs that take no new pods.
    #[serde(default, skip_serializing_if = "is_default")]
    pub closed_gpus: Vec<u16>,
    /// GPUs of more than the usual risk.
    #[serde(default, skip_serializing_if = "is_default")]
    pub risks: BTreeMap<u16, RiskClass>,
}

/// A pod's request; see [`crate::Shape`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShapeRecord {
    /// CPU, memory and pod places.
    #[serde(default, skip_serializing_if = "is_default")]
    pub resources: Resources,
    /// GPUs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpus: GpuDemand,
    /// Names of models that will do; none: any.
    #[serde(default, skip_serializing_if = "is_default")]
    pub models: Vec<String>,
    /// Properties that a node must have.
    #[serde(default, skip_serializing_if = "is_default")]
    pub needs: FeatureMask,
    /// Properties that are tolerated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tolerates: FeatureMask,
}

/// Scheduling attributes of a workload; see [`crate::workload::Profile`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProfileRecord {
    /// Its name.
    pub name: String,
    /// Its tenant.
    #[serde(default = "default_tenant", skip_serializing_if = "is_default_tenant")]
    pub tenant: String,
    /// Its priority.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// Whether it must not be evicted.
    #[serde(default, skip_serializing_if = "is_default")]
    pub not_preemptible: bool,
    /// Whether its members must not be moved.
    #[serde(default, skip_serializing_if = "is_default")]
    pub not_movable: bool,
    /// Seconds of work that a failure costs.
    #[serde(default, skip_serializing_if = "is_default")]
    pub seconds_at_risk: u32,
    /// Level in one domain of which all must lie.
    #[serde(default, skip_serializing_if = "is_default")]
    pub required: Option<String>,
    /// Level in one domain of which all should lie.
    #[serde(default, skip_serializing_if = "is_default")]
    pub preferred: Option<String>,
}

/// A workload that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WorkloadRecord {
    /// Scheduling attributes.
    pub profile: ProfileRecord,
    /// Members without which it is worth nothing.
    #[serde(default, skip_serializing_if = "is_default")]
    pub min_members: u32,
    /// Whether it is evicted whole or not at all; see [`crate::workload::Coupling`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub whole: bool,
    /// Whether none of its members can be moved alone; see [`crate::workload::Coupling`].
    #[serde(default, skip_serializing_if = "is_default")]
    pub fixed: bool,
    /// Distinct requests of its members.
    pub shapes: Vec<ShapeRecord>,
    /// Its members.
    pub members: Vec<MemberRecord>,
}

/// A member that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MemberRecord {
    /// Its rank.
    pub rank: u32,
    /// Index of what it asks for in the workload's list.
    #[serde(default, skip_serializing_if = "is_default")]
    pub shape: u32,
    /// Name of its node.
    pub node: String,
    /// Allocated GPU parts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpus: Vec<PartRecord>,
    /// Name of the limit that its eviction counts against.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limit: Option<String>,
}

/// A member of a waiting gang that is already placed; see [`crate::solve::Pinned`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PinnedRecord {
    /// Its rank among all members of the gang.
    pub rank: u32,
    /// Name of its node.
    pub node: String,
    /// Allocated GPU parts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpus: Vec<PartRecord>,
}

/// The part of one GPU that a member holds; see [`crate::GpuPart`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PartRecord {
    /// Index of the GPU.
    pub gpu: u16,
    /// Compute in thousandths.
    pub milli: u16,
    /// Memory in MiB.
    #[serde(default, skip_serializing_if = "is_default")]
    pub memory_mib: u32,
    /// First memory slice of a MIG instance.
    #[serde(default, skip_serializing_if = "is_default")]
    pub start: Option<u8>,
    /// Memory slices of a MIG instance.
    #[serde(default, skip_serializing_if = "is_default")]
    pub size: u8,
    /// Whether the MIG instance has the media engines.
    #[serde(default, skip_serializing_if = "is_default")]
    pub media: bool,
}

/// A gang that waits; see [`crate::Gang`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GangRecord {
    /// Scheduling attributes.
    pub profile: ProfileRecord,
    /// Its groups.
    pub groups: Vec<GroupRecord>,
}

/// A group of a gang; see [`crate::Group`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GroupRecord {
    /// Its name.
    pub name: String,
    /// The request of each member.
    pub shape: ShapeRecord,
    /// Members.
    pub count: u32,
    /// Members without which the gang is not placed; absent: all.
    #[serde(default, skip_serializing_if = "is_default")]
    pub min: Option<u32>,
    /// Level in one domain of which the group must lie.
    #[serde(default, skip_serializing_if = "is_default")]
    pub required: Option<String>,
    /// Level in one domain of which the group should lie.
    #[serde(default, skip_serializing_if = "is_default")]
    pub preferred: Option<String>,
    /// Groups with the same number share one domain of their required level.
    #[serde(rename = "together", default, skip_serializing_if = "is_default")]
    pub colocation_id: Option<u32>,
    /// Segments.
    #[serde(default, skip_serializing_if = "is_default")]
    pub segment: Option<SegmentRecord>,
    /// Nodes on which no member of the group is placed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub forbidden: Vec<String>,
    /// How many members one node may have.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: Vec<NodeLimit>,
    /// Points of preferences that a member misses, by the name of the node; absent: none.
    #[serde(default, skip_serializing_if = "is_default")]
    pub penalties: BTreeMap<String, u32>,
}

/// Segments of a group; see [`crate::gang::Segment`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SegmentRecord {
    /// Members of a segment.
    pub size: u32,
    /// Level in one domain of which a segment lies.
    pub level: String,
}

fn default_tenant() -> String {
    "default".to_owned()
}

fn is_default_tenant(tenant: &str) -> bool {
    tenant == "default"
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
