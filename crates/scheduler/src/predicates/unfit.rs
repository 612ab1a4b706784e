//! Why a pod cannot run on a node.

use std::sync::Arc;

use octavo_kube_io::objects::{HostPort, NodeTaint, ObjectName};

/// Why a pod cannot run on a node: one reason of one filter. As text it is what kube-scheduler says,
/// so that reasons of many nodes can be counted; the fields say more.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// The node is cordoned.
    #[error("node(s) were unschedulable")]
    Cordoned,
    /// The pod names another node itself.
    #[error("node(s) didn't match the requested node name")]
    OtherNode {
        /// The node that it names.
        wanted: Arc<str>,
    },
    /// The pod does not tolerate a taint of the node.
    #[error("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value)]
    Taint {
        /// The first such taint.
        taint: NodeTaint,
    },
    /// The node is not one that the pod's node selector and required node affinity mean.
    #[error("node(s) didn't match Pod's node affinity/selector")]
    Affinity,
    /// A port of the host is taken.
    #[error("node(s) didn't have free ports for the requested pod ports")]
    Port {
        /// The port.
        port: HostPort,
    },
    /// The node has as many pods as it takes.
    #[error("Too many pods")]
    Pods {
        /// How many it takes.
        capacity: i128,
    },
    /// A resource does not suffice.
    #[error("Insufficient {resource}")]
    Insufficient {
        /// The resource.
        resource: Arc<str>,
        /// What the pod takes; thousandths of `cpu`, whole units of others.
        requested: i128,
        /// What those that run take.
        used: i128,
        /// What the node has.
        capacity: i128,
    },
    /// A disk is in use on the node in a way that excludes this pod.
    #[error("node(s) had no available disk")]
    Disk {
        /// Kind of the disk.
        kind: String,
        /// Which one.
        id: String,
    },
    /// The node would have more volumes of a CSI driver attached than it can.
    #[error("node(s) exceed max volume count")]
    VolumeLimit {
        /// The driver.
        driver: String,
        /// How many it can have.
        limit: u32,
    },
    /// A volume of the pod cannot be reached from the node.
    #[error("node(s) didn't match PersistentVolume's node affinity")]
    VolumeAffinity {
        /// The volume.
        volume: Arc<str>,
    },
    /// A volume of the pod is in another zone or region.
    #[error("node(s) had no available volume zone")]
    VolumeZone {
        /// The volume.
        volume: Arc<str>,
    },
    /// A pod that runs nearby lets none like this one near it.
    #[error("node(s) didn't satisfy existing pods anti-affinity rules")]
    AntiAffinity {
        /// The label that says what is near.
        topology_key: String,
        /// Its value on the node.
        value: String,
    },
    /// Another pod uses a claim that is for one pod at a time.
    #[error(
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
    )]
    ClaimInUse {
        /// The claim.
        claim: ObjectName,
    },
    /// A claim of the pod does not exist.
    #[error("persistentvolumeclaim \"{}\" not found", claim.name)]
    MissingClaim {
        /// The claim.
        claim: ObjectName,
    },
    /// A claim of the pod is being deleted.
    #[error("persistentvolumeclaim \"{}\" is being deleted", claim.name)]
    DeletedClaim {
        /// The claim.
        claim: ObjectName,
    },
    /// The claim of an ephemeral volume belongs to something else.
    #[error("PVC {claim} was not created for pod (pod is not owner)")]
    ForeignClaim {
        /// The claim.
        claim: ObjectName,
    },
    /// A claim of the pod is not bound yet, and placing the pod would not bind it.
    #[error("pod has unbound immediate PersistentVolumeClaims")]
    UnboundClaim {
        /// The claim.
        claim: ObjectName,
    },
    /// A claim of the pod is bound to a volume that does not exist.
    #[error("persistentvolume \"{volume}\" not found")]
    MissingVolume {
        /// The volume.
        volume: Arc<str>,
    },
}

impl Unfit {
    /// The filter of kube-scheduler that says so.
    pub fn filter(&self) -> &'static str {
        match self {
            Self::Cordoned => "NodeUnschedulable",
            Self::OtherNode { .. } => "NodeName",
            Self::Taint { .. } => "TaintToleration",
            Self::Affinity => "NodeAffinity",
            Self::Port { .. } => "NodePorts",
            Self::Pods { .. } | Self::Insufficient { .. } => "NodeResourcesFit",
            Self::Disk { .. } | Self::ClaimInUse { .. } => "VolumeRestrictions",
            Self::VolumeLimit { .. } => "NodeVolumeLimits",
            Self::VolumeZone { .. } => "VolumeZone",
            Self::AntiAffinity { .. } => "InterPodAffinity",
            Self::VolumeAffinity { .. }
            | Self::MissingClaim { .. }
            | Self::DeletedClaim { .. }
            | Self::ForeignClaim { .. }
            | Self::UnboundClaim { .. }
            | Self::MissingVolume { .. } => "VolumeBinding",
        }
    }

    /// Whether it is of the pod alone: no node could help.
    pub fn is_pod_level(&self) -> bool {
        matches!(
            self,
            Self::MissingClaim { .. }
                | Self::DeletedClaim { .. }
                | Self::ForeignClaim { .. }
                | Self::UnboundClaim { .. }
                | Self::MissingVolume { .. }
        )
    }

    /// Whether it could end if other pods went.
    pub fn could_preemption_help(&self) -> bool {
        match self {
            Self::Port { .. }
            | Self::Disk { .. }
            | Self::VolumeLimit { .. }
            | Self::AntiAffinity { .. }
            | Self::ClaimInUse { .. } => true,
            Self::Pods { capacity } => *capacity > 0,
            Self::Insufficient { requested, capacity, .. } => requested <= capacity,
            _ => false,
        }
    }
}
