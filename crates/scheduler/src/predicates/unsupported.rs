//! Requirements of pods that this scheduler does not support and does not ignore.

use octavo_kube_io::objects::{ObjectName, Pod};

use super::Volumes;
use super::volumes::ClaimState;

/// A requirement of a pod that this scheduler does not support. The pod waits with this reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// A claim whose volume is chosen when the pod is placed.
    #[error(
        "the volume of claim {claim} is chosen only when its pod is placed (storage class {class:?} has \
         volumeBindingMode WaitForFirstConsumer), which Octavo's scheduler does not do: use a storage \
         class with Immediate, or bind the claim to a volume beforehand"
    )]
    LateBinding {
        /// The claim.
        claim: ObjectName,
        /// Its storage class.
        class: String,
    },
    /// Required inter-pod affinity of the pod.
    #[error(
        "the pod requires others near it (podAffinity on {topology_key:?}), which Octavo's scheduler does \
         not decide: put the pods into one PodGroup with a topology, or make the affinity preferred"
    )]
    Affinity {
        /// The topology key.
        topology_key: String,
    },
    /// Required inter-pod anti-affinity of the pod.
    #[error(
        "the pod requires others away from it (podAntiAffinity on {topology_key:?}), which Octavo's \
         scheduler does not decide: ask for whole nodes or ports instead, or make the anti-affinity \
         preferred"
    )]
    AntiAffinity {
        /// The topology key.
        topology_key: String,
    },
    /// A hard topology spread constraint.
    #[error(
        "the pod must be spread over {topology_key:?} (whenUnsatisfiable: DoNotSchedule), which Octavo's \
         scheduler does not decide: set whenUnsatisfiable to ScheduleAnyway"
    )]
    Spread {
        /// Label of nodes.
        topology_key: String,
    },
}

impl Unsupported {
    /// Reason of conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::LateBinding { .. } => "UnsupportedVolumeBinding",
            Self::Affinity { .. } => "UnsupportedPodAffinity",
            Self::AntiAffinity { .. } => "UnsupportedPodAntiAffinity",
            Self::Spread { .. } => "UnsupportedTopologySpread",
        }
    }
}

/// The first requirement of a pod that is unsupported. Preferences do not count.
pub fn unsupported(pod: &Pod, volumes: &Volumes) -> Option<Unsupported> {
    let spec = &pod.spec;
    if let Some(term) = spec.affinity.first() {
        return Some(Unsupported::Affinity { topology_key: term.topology_key.clone() });
    }
    if let Some(term) = spec.anti_affinity.first() {
        return Some(Unsupported::AntiAffinity { topology_key: term.topology_key.clone() });
    }
    if let Some(spread) = spec.spread.iter().find(|spread| spread.is_hard) {
        return Some(Unsupported::Spread { topology_key: spread.topology_key.clone() });
    }
    spec.volumes.iter().find_map(|volume| match volumes.state(pod, volume)? {
        ClaimState::Unbound(claim) => volumes.late_binding_class(claim).map(|class| {
            let class = class.meta.name.name.to_string();
            Unsupported::LateBinding { claim: claim.meta.name.clone(), class }
        }),
        _ => None,
    })
}
