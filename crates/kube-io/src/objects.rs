//! Kubernetes objects as values, trimmed to the fields that decisions need.
//!
//! A watch of a large cluster keeps one value for each object, so unused fields are dropped while
//! reading. Nothing here does I/O; `convert` makes the values from JSON.

mod change;
mod convert;
mod ids;
mod meta;
mod node;
mod pod;
mod resource;
mod storage;

pub use change::{Change, Delta, Kind};
pub use convert::{Fault, ReadError};
pub(crate) use convert::{Reader, WatchedType, WireObject};
pub use ids::{ClaimUid, NodeName, PodUid};
pub use meta::{Meta, ObjectName, Owner};
pub use node::{Node, NodeTaint, TaintEffect};
pub use pod::{
    AffinityTerm, Container, ContainerKind, ExtendedClaimStatus, HostPort, LabelRequirement,
    LabelSelector, Phase, Pod, PodClaim, PodSpec, PodVolume, Requests, ScheduledCondition, Spread,
    Toleration, VolumeSource, WHOLE_POD,
};
pub use resource::{Claim, ClaimConfig, Consumer, DeviceClass, DeviceConditions, ResourceSlice};
pub use storage::{
    BindingMode, Budget, CsiCapacity, CsiDriver, CsiNode, PersistentVolume, StorageClass,
    VolumeClaim, WatchedObject,
};
