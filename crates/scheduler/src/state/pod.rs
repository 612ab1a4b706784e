//! A pod as decisions see it.

use std::sync::Arc;

use octavo_engine::placement::GpuParts;
use octavo_engine::workload::Profile;
use octavo_engine::{Resources, Shape};
use octavo_kube_io::objects::Pod;

use super::node::GpuUse;
use super::node_mask::NodeMask;
use crate::bind::{OrderId, PodRef};
use crate::groups::{GroupError, GroupName, Member, Standing};
use crate::predicates::{Footprint, StaticKey};

/// A pod, and what is decided about it.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact by itself, and all meet")]
#[derive(Clone, Debug)]
pub(super) struct PodRecord {
    pub(super) pod: Arc<Pod>,
    pub(super) footprint: Arc<Footprint>,
    /// The gang that it belongs to.
    pub(super) member: Option<Member>,
    /// Why it is no member of the gang that it names.
    pub(super) group_fault: Option<GroupError>,
    /// The gang that it names, whether it is known or not.
    pub(super) named_group: Option<GroupName>,
    /// How it counted for its gang when that was last asked, and whether it had no gates.
    pub(super) member_state: Option<(Standing, bool)>,
    /// Whether it is kept among the users of its claims.
    pub(super) has_indexed_claims: bool,
    /// Its wish's mark, entered for as long as the pod waits or is ours and placed.
    pub(super) node_mask: Option<(NodeMask, StaticKey, GpuUse)>,
    /// What the engine knows as its request.
    pub(super) shape: Option<Arc<Shape>>,
    pub(super) profile: Option<Arc<Profile>>,
    /// Where it is, or is to be.
    pub(super) place: Option<Place>,
    /// The node where its amounts are counted.
    pub(super) counted: Option<Arc<str>>,
    /// Whether it was asked to leave and its place is promised to others.
    pub(super) is_leaving: bool,
    /// Whether the packing policy was told of it.
    pub(super) has_arrived: bool,
    /// Failed orders in a row.
    pub(super) failures: u32,
    /// Whether it was deleted because its node is lost.
    pub(super) is_repaired: bool,
    /// It could not be evicted: nobody tries before this time.
    pub(super) eviction_retry_at: u64,
}

/// Where a pod is, or is to be.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Place {
    pub(super) node: Arc<str>,
    /// Parts of GPUs that were decided on. Of a bound pod its claims say what it has.
    pub(super) gpus: GpuParts,
    pub(super) state: PlaceState,
}

/// How sure a place is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlaceState {
    /// The API says so.
    Bound,
    /// It was decided; the order is on its way, or carried out and not yet seen.
    Assumed(OrderId),
    /// It was decided; others must leave first.
    Nominated,
}

impl PodRecord {
    /// A pod of which nothing is decided.
    pub(super) fn new(pod: Arc<Pod>, footprint: Arc<Footprint>) -> Self {
        Self {
            pod,
            footprint,
            member: None,
            group_fault: None,
            named_group: None,
            member_state: None,
            has_indexed_claims: false,
            node_mask: None,
            shape: None,
            profile: None,
            place: None,
            counted: None,
            is_leaving: false,
            has_arrived: false,
            failures: 0,
            is_repaired: false,
            eviction_retry_at: 0,
        }
    }

    /// Its name and UID.
    pub(super) fn reference(&self) -> PodRef {
        PodRef { name: self.pod.meta.name.clone(), uid: Arc::clone(&self.pod.meta.uid) }
    }

    /// Whether it is on its node or on its way there, and its place is not promised to others.
    pub(super) fn occupies(&self) -> bool {
        self.place.is_some() && !self.pod.has_ended() && !self.is_leaving
    }

    /// Whether it wants a place of the scheduler of this name.
    pub(super) fn is_pending_for(&self, scheduler: &str) -> bool {
        self.pod.spec.scheduler == scheduler
            && self.pod.node.is_none()
            && self.place.is_none()
            && !self.pod.has_ended()
            && self.pod.meta.deleted.is_none()
            && self.pod.spec.gates.is_empty()
    }
}

/// A pod's amounts as the engine counts them: whole MiB, up.
pub(super) fn resources(footprint: &Footprint) -> Resources {
    let whole = |value: i128| i64::try_from(value).unwrap_or(i64::MAX);
    let memory = footprint.amounts.memory;
    let mib = (memory >> 20) + i128::from(memory & ((1 << 20) - 1) != 0);
    Resources { cpu_milli: whole(footprint.amounts.cpu), memory_mib: whole(mib), pods: 1 }
}

/// Whether a pod takes more of a node than the engine knows.
pub(super) fn takes_uncounted(footprint: &Footprint, is_gpu: impl Fn(&str) -> bool) -> bool {
    footprint.amounts.storage > 0
        || footprint.amounts.others.iter().any(|(name, _)| !is_gpu(name))
        || !footprint.ports.is_empty()
        || !footprint.disks.is_empty()
        || !footprint.claims.is_empty()
}
