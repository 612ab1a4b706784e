//! Whether a pod may run on a node, by Kubernetes' rules: what kube-scheduler's filters say, dynamic
//! resources left out.
//!
//! | filter of kube-scheduler | here |
//! |---|---|
//! | `NodeUnschedulable`, `NodeName`, `TaintToleration`, `NodeAffinity` | the same: [`StaticKey`] |
//! | `NodePorts`, `NodeResourcesFit` | the same: [`check_room`] |
//! | `VolumeRestrictions` | the same: disks in [`check_room`], `ReadWriteOncePod` in [`Neighbours`] |
//! | `NodeVolumeLimits` | volumes of CSI drivers that pods use through claims: [`check_room`] |
//! | `VolumeBinding`, `VolumeZone` | bound claims: [`StaticKey`]; late binding is [`Unsupported`] |
//! | `InterPodAffinity` | anti-affinity of pods that run: [`Neighbours`]; a newcomer's own is [`Unsupported`] |
//! | `PodTopologySpread` | constraints that must hold are [`Unsupported`] |
//! | `NodeDeclaredFeatures` | not looked at |
//! | `DynamicResources` | not here: the engine and the allocator |
//!
//! Preferences (preferred affinity, `ScheduleAnyway`, `PreferNoSchedule`) decide nothing. Amounts are
//! those of the pod's spec: a resize in place that runs is not looked at.
//!
//! What can be said once for many nodes is said once: a [`StaticKey`] is what of a pod meets a node's
//! labels and taints, a [`Footprint`] what it takes, a [`Capacity`] what a node has, [`Away`] where
//! those that run let nobody near. Nothing is allocated where the answer is yes.

mod amounts;
mod footprint;
mod labels;
mod neighbours;
mod room;
mod static_key;
mod tally;
#[cfg(test)]
mod tests;
mod unfit;
mod unsupported;
mod usage;
mod volumes;

use octavo_kube_io::objects::{Node, Pod};

pub use amounts::Amounts;
pub use footprint::{Disk, Footprint};
pub use labels::selects;
pub use neighbours::{Away, Neighbours};
pub use room::check_room;
pub use static_key::StaticKey;
pub use tally::Tally;
pub use unfit::Unfit;
pub use unsupported::{Unsupported, unsupported};
pub use usage::{Capacity, Usage};
pub use volumes::Volumes;

/// Whether `pod` may run on `node` as far as nothing else that runs there matters: name, labels,
/// taints, cordon, and where the pod's volumes can be reached. The first reason against it.
///
/// For one pod and many nodes make the [`StaticKey`] once.
pub fn check_static(pod: &Pod, node: &Node, volumes: &Volumes) -> Result<(), Unfit> {
    StaticKey::of(pod, volumes).check(node)
}
