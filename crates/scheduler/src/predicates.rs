//! Whether a pod may run on a node, by Kubernetes' rules: what kube-scheduler's filters say, dynamic
//! resources left out.
//!
//! | filter of kube-scheduler | here |
//! |---|---|
//! | `NodeUnschedulable`, `NodeName`, `TaintToleration`, `NodeAffinity` | the same: [`NodeFilterKey`] |
//! | `NodePorts`, `NodeResourcesFit` | the same: [`check_resource_fit`] |
//! | `VolumeRestrictions` | the same: disks in [`check_resource_fit`], `ReadWriteOncePod` in [`AntiAffinityIndex`] |
//! | `NodeVolumeLimits` | volumes of CSI drivers that pods use through claims: [`check_resource_fit`] |
//! | `VolumeBinding`, `VolumeZone` | bound claims: [`NodeFilterKey`]; late binding is [`Unsupported`] |
//! | `InterPodAffinity` | anti-affinity of pods that run: [`AntiAffinityIndex`]; a newcomer's own is [`Unsupported`] |
//! | `PodTopologySpread` | constraints that must hold are [`Unsupported`] |
//! | `NodeDeclaredFeatures` | not looked at |
//! | `DynamicResources` | not here: the engine and the allocator |
//!
//! Preferences (preferred affinity, `ScheduleAnyway`, `PreferNoSchedule`) decide nothing. Amounts are
//! those of the pod's spec: a resize in place that runs is not looked at.
//!
//! What can be said once for many nodes is said once: a [`NodeFilterKey`] is what of a pod meets a node's
//! labels and taints, a [`PodRequests`] what it takes, a [`Capacity`] what a node has, [`Exclusions`] where
//! those that run let nobody near. Nothing is allocated where the answer is yes.

mod amounts;
mod anti_affinity;
mod labels;
mod node_filter_key;
mod pod_requests;
mod reason_counts;
mod resource_fit;
#[cfg(test)]
mod tests;
mod unfit;
mod unsupported;
mod usage;
mod volumes;

use octavo_kube_io::objects::{Node, Pod};

pub use amounts::Amounts;
pub use anti_affinity::{AntiAffinityIndex, Exclusions};
pub use labels::selects;
pub use node_filter_key::NodeFilterKey;
pub use pod_requests::{Disk, PodRequests};
pub use reason_counts::ReasonCounts;
pub use resource_fit::check_resource_fit;
pub use unfit::Unfit;
pub use unsupported::{Unsupported, unsupported};
pub use usage::{Capacity, Usage};
pub use volumes::Volumes;

/// Whether `pod` may run on `node` as far as nothing else that runs there matters: name, labels,
/// taints, cordon, and where the pod's volumes can be reached. The first reason against it.
///
/// For one pod and many nodes make the [`NodeFilterKey`] once.
pub fn check_node_filters(pod: &Pod, node: &Node, volumes: &Volumes) -> Result<(), Unfit> {
    NodeFilterKey::of(pod, volumes).check(node)
}
