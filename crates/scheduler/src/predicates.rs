//! kube-scheduler's filters: whether a pod may run on a node, without dynamic resources.
//!
//! | filter of kube-scheduler | here |
//! |---|---|
//! | `NodeUnschedulable`, `NodeName`, `TaintToleration`, `NodeAffinity` | the same: [`NodeFilterKey`] |
//! | `NodePorts`, `NodeResourcesFit` | the same: [`check_resource_fit`] |
//! | `VolumeRestrictions` | the same: disks in [`check_resource_fit`], `ReadWriteOncePod` in [`Neighbours`] |
//! | `NodeVolumeLimits` | volumes of CSI drivers that pods use through claims: [`check_resource_fit`] |
//! | `VolumeBinding`, `VolumeZone` | the same: [`NodeFilterKey`] |
//! | `InterPodAffinity`, `PodTopologySpread` | the same: [`Neighbours`] |
//! | `NodeDeclaredFeatures` | ignored |
//! | `DynamicResources` | not here: the engine and the allocator |
//!
//! Preferences (preferred affinity, `ScheduleAnyway`, `PreferNoSchedule`) are scores: [`Scores`].
//! Amounts are those of the pod's spec, or the allocated ones while an in-place resize is not done.
//!
//! Results that hold for many nodes are computed once. A [`NodeFilterKey`] is what a pod requires
//! of a node's labels and taints, a [`PodRequests`] what it requests, a [`Capacity`] what a node
//! has. [`Exclusions`] are the domains from which other pods exclude it. A positive check
//! allocates no memory.

mod amounts;
mod labels;
mod neighbours;
mod node_filter_key;
mod pod_requests;
mod preferences;
mod resource_fit;
#[cfg(test)]
mod tests;
mod unfit;
mod usage;
mod volumes;

pub use amounts::Amounts;
pub use labels::selects;
pub use neighbours::{Exclusions, Neighbours};
pub use node_filter_key::NodeFilterKey;
pub(crate) use node_filter_key::tolerates;
pub use pod_requests::{Disk, PodRequests};
pub use preferences::{Scores, has_preferences};
pub use resource_fit::check_resource_fit;
pub use unfit::Unfit;
pub use usage::{Capacity, Usage};
pub use volumes::Volumes;
pub(crate) use volumes::{SELECTED_NODE, VolumeChoice};
