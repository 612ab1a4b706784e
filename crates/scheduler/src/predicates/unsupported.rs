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
}

impl Unsupported {
    /// Reason of conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::LateBinding { .. } => "UnsupportedVolumeBinding",
        }
    }
}

/// The first requirement of a pod that is unsupported. Preferences do not count.
pub fn unsupported(pod: &Pod, volumes: &Volumes) -> Option<Unsupported> {
    pod.spec.volumes.iter().find_map(|volume| match volumes.state(pod, volume)? {
        ClaimState::Unbound(claim) => volumes.late_binding_class(claim).map(|class| {
            let class = class.meta.name.name.to_string();
            Unsupported::LateBinding { claim: claim.meta.name.clone(), class }
        }),
        _ => None,
    })
}
