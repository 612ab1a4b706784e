//! Kubernetes objects as values, trimmed to what decisions need.
//!
//! A watch of a large cluster keeps one of these for each object, so what nobody decides by is left
//! behind at the edge. Nothing here does I/O; `convert` makes them of the client's types.

mod change;
mod convert;
mod meta;
mod node;
mod pod;
mod resource;
mod storage;

pub use change::{Change, Delta, Kind};
pub use convert::{Fault, ReadError};
pub(crate) use convert::{Reader, WatchedType, WireObject};
pub use meta::{Meta, ObjectName, Owner};
pub use node::{Node, NodeTaint, TaintEffect};
pub use pod::{
    AffinityTerm, Container, ContainerKind, ExtendedClaimStatus, HostPort, LabelRequirement,
    LabelSelector, Phase, Pod, PodClaim, PodSpec, PodVolume, Requests, ScheduledCondition, Spread,
    Toleration, VolumeSource, WHOLE_POD,
};
pub use resource::{Claim, ClaimConfig, Consumer, DeviceClass, DeviceConditions, ResourceSlice};
pub use storage::{
    BindingMode, Budget, CsiNode, PersistentVolume, StorageClass, VolumeClaim, WatchedObject,
};
