//! Why a pod cannot run on a node.

use std::sync::Arc;

use octavo_kube_io::objects::{NodeTaint, ObjectName};

/// Why a pod cannot run on a node: one reason of one filter. Its text equals kube-scheduler's, so
/// that reasons of many nodes can be counted. The fields have the details.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// The node is cordoned.
    #[error("node(s) were unschedulable")]
    Cordoned,
    /// The pod names another node itself.
    #[error("node(s) didn't match the requested node name")]
    OtherNode,
    /// The pod does not tolerate a taint of the node.
    #[error("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value)]
    Taint {
        /// The first such taint.
        taint: NodeTaint,
    },
    /// The node does not match the pod's node selector or required node affinity.
    #[error("node(s) didn't match Pod's node affinity/selector")]
    Affinity,
    /// A host port is taken.
    #[error("node(s) didn't have free ports for the requested pod ports")]
    Port,
    /// The node has as many pods as it allows.
    #[error("Too many pods")]
    Pods {
        /// How many it takes.
        capacity: i128,
    },
    /// A resource is insufficient.
    #[error("Insufficient {resource}")]
    Insufficient {
        /// The resource.
        resource: Arc<str>,
        /// The pod's request; thousandths of `cpu`, whole units of others.
        requested: i128,
        /// What the running pods request.
        used: i128,
        /// What the node has.
        capacity: i128,
    },
    /// A disk is in use on the node in a way that excludes this pod.
    #[error("node(s) had no available disk")]
    Disk,
    /// The node would exceed its limit of attached volumes of a CSI driver.
    #[error("node(s) exceed max volume count")]
    VolumeLimit {
        /// The driver.
        driver: String,
        /// The limit.
        limit: u32,
    },
    /// The node does not reach a volume of the pod.
    #[error("node(s) didn't match PersistentVolume's node affinity")]
    VolumeAffinity,
    /// A volume of the pod is in another zone or region.
    #[error("node(s) had no available volume zone")]
    VolumeZone,
    /// A running pod's anti-affinity excludes this one.
    #[error("node(s) didn't satisfy existing pods anti-affinity rules")]
    AntiAffinity,
    /// The pod's own anti-affinity excludes it from a running pod.
    #[error("node(s) didn't match pod anti-affinity rules")]
    OwnAntiAffinity,
    /// The pod's affinity requires other pods, which are not in the node's domain.
    #[error("node(s) didn't match pod affinity rules")]
    NoPodNear,
    /// A topology spread constraint allows no further pod in the node's domain.
    #[error("node(s) didn't match pod topology spread constraints")]
    Spread,
    /// The node lacks the label of a topology spread constraint.
    #[error("node(s) didn't match pod topology spread constraints (missing required label)")]
    SpreadLabel,
    /// Another pod uses a claim that is for one pod at a time.
    #[error(
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
    )]
    ClaimInUse,
    /// The node has no volume for a claim of the pod, and none is provisioned for it.
    #[error("node(s) didn't find available persistent volumes to bind")]
    NoVolume,
    /// The storage of the node has no capacity for a claim of the pod.
    #[error("node(s) did not have enough free storage")]
    NoStorage,
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
    UnboundClaim,
    /// A claim of the pod is bound to a volume that does not exist.
    #[error("persistentvolume \"{volume}\" not found")]
    MissingVolume {
        /// The volume.
        volume: Arc<str>,
    },
}

impl Unfit {
    /// Whether evicting other pods could remove it.
    pub fn could_preemption_help(&self) -> bool {
        match self {
            Self::Port
            | Self::Disk
            | Self::VolumeLimit { .. }
            | Self::AntiAffinity
            | Self::OwnAntiAffinity
            | Self::Spread
            | Self::ClaimInUse => true,
            Self::Pods { capacity } => *capacity > 0,
            Self::Insufficient { requested, capacity, .. } => requested <= capacity,
            _ => false,
        }
    }
}
