//! The devices of a pod's claims on a node, by the DRA allocator, beside everything held or
//! assumed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_api::names::{DRIVER, TAINT_OWNER};
use octavo_dra::{
    AllocateError, Allocation, Allocator, Count, ExtendedClaim, SliceIndex, TaintEffect, Toleration,
};
use octavo_engine::placement::{GpuPart, GpuParts};
use octavo_engine::shape::GpuDemand;
use octavo_kube_io::objects::{Claim, NodeName, PodUid};
use uuid::Uuid;

use super::Devices;
use super::allocation_patch::allocation_to_write;
use super::ask::{Ask, AskedClaim};
use super::assume_cache::{AssumedClaim, ClaimKey, ReplacedBy};
use super::invalidation::Invalidation;
use super::nodes::NodeView;
use super::pools::Pool;
use crate::bind::{ClaimVersions, ClaimWrite, ExtendedWrite};

/// Name space of share UIDs (version 5 of RFC 9562), a random number.
const SHARE_ID_NAMESPACE: Uuid = Uuid::from_u128(0x6d0a_5b8e_2f14_4c7a_9e63_b1d7_40c8_f235);

/// The devices that the claims of a pod get on a node.
#[derive(Clone, Debug, PartialEq)]
pub struct PodAllocation {
    /// UID of the pod.
    pub pod: PodUid,
    /// Its namespace.
    pub namespace: Arc<str>,
    /// The node.
    pub node: NodeName,
    /// The pod's claims in the order of its spec, with what to write.
    pub claims: Vec<ClaimWrite>,
    /// The claim for its extended resources.
    pub extended: Option<ExtendedWrite>,
    /// Parts of the node's GPUs that it takes and that were free before, in order.
    pub parts: GpuParts,
}

/// Why the claims of a pod cannot be allocated on a node.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PodAllocationError {
    /// The allocator found no devices.
    #[error(transparent)]
    Refused(#[from] AllocateError),
    /// The node does not reach a claim that is allocated already.
    #[error("the node does not reach the devices of a claim that is allocated already")]
    ClaimUnreachable,
    /// The node is unknown.
    #[error("node {0} has no devices")]
    UnknownNode(NodeName),
}

impl PodAllocationError {
    /// Whether the search gave up, so that there may be devices nevertheless.
    pub fn is_undecided(&self) -> bool {
        matches!(self, Self::Refused(AllocateError::Steps { .. }))
    }
}

/// The claims beside which devices are allocated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Holders<'h> {
    /// All that hold something now, and what is reserved for nominated pods.
    Present,
    /// As [`Self::Present`], as if these pods had left with their claims.
    Without(&'h BTreeSet<PodUid>),
    /// As [`Self::Present`], but for what is reserved for these nominated pods.
    PresentBeside(&'h BTreeSet<PodUid>),
    /// None: the node is empty.
    None,
}

/// The claims to allocate, in the allocator's form.
pub(super) struct RequestedClaims {
    pub(super) claims: Vec<octavo_dra::Claim>,
    extended: Option<ExtendedClaim>,
}

impl Devices {
    /// Allocates all claims of a pod on a node, or none. `wanted` are the parts of GPUs that the
    /// engine chose. The allocator takes these devices if they match, else any.
    ///
    /// Nothing is assumed by it: see [`Devices::assume`]. Forget earlier assumptions for this pod
    /// first, because they count as held.
    pub fn allocate(
        &self,
        ask: &Ask,
        node: &str,
        wanted: Option<&[GpuPart]>,
    ) -> Result<PodAllocation, PodAllocationError> {
        self.allocate_beside(ask, node, wanted, Holders::Present, &[])
    }

    /// As [`Self::allocate`], as if these pods had left with their claims, and beside other
    /// allocations that are not assumed.
    pub fn allocate_after(
        &self,
        ask: &Ask,
        node: &str,
        wanted: Option<&[GpuPart]>,
        leaving: &BTreeSet<PodUid>,
        beside: &[PodAllocation],
    ) -> Result<PodAllocation, PodAllocationError> {
        let beside: Vec<AssumedClaim> = beside.iter().flat_map(assumed_claims).collect();
        self.allocate_beside(ask, node, wanted, Holders::Without(leaving), &beside)
    }

    /// As [`Self::allocate`], with devices that are reserved for nominated pods and free now. `kept`
    /// are the parts of GPUs that they have.
    pub fn allocate_lent(
        &self,
        ask: &Ask,
        node: &str,
        kept: &[GpuPart],
        lenders: &BTreeSet<PodUid>,
    ) -> Result<PodAllocation, PodAllocationError> {
        self.allocate_beside(ask, node, Some(kept), Holders::PresentBeside(lenders), &[])
    }

    /// As [`Self::allocate`], as if no claim held any device of the node but these allocations.
    pub fn allocate_when_empty(
        &self,
        ask: &Ask,
        node: &str,
        beside: &[PodAllocation],
    ) -> Result<PodAllocation, PodAllocationError> {
        let beside: Vec<AssumedClaim> = beside.iter().flat_map(assumed_claims).collect();
        self.allocate_beside(ask, node, None, Holders::None, &beside)
    }

    fn allocate_beside(
        &self,
        ask: &Ask,
        node: &str,
        wanted: Option<&[GpuPart]>,
        holders: Holders<'_>,
        beside: &[AssumedClaim],
    ) -> Result<PodAllocation, PodAllocationError> {
        if !self.is_allowed(ask, node) {
            return Err(PodAllocationError::ClaimUnreachable);
        }
        let Some((name, view)) = self.nodes.get_key_value(node) else {
            return without_devices(ask, node);
        };
        let asked = self.wanted(ask, view);
        let mut pod_allocation = PodAllocation {
            pod: ask.pod.clone(),
            namespace: Arc::clone(&ask.namespace),
            node: name.clone(),
            claims: Vec::with_capacity(ask.claims.len()),
            extended: None,
            parts: GpuParts::new(),
        };
        let allocations = self.with_allocator(view, holders, beside, |allocator| {
            let claims: Vec<&octavo_dra::Claim> = asked.claims.iter().collect();
            if claims.is_empty() {
                return Ok(Vec::new());
            }
            // A count of `All` takes every device, and the order of alternatives takes precedence
            // over the engine's choice.
            let is_choice = claims.iter().flat_map(|claim| &claim.requests).all(|request| {
                matches!(&request.ask, octavo_dra::Ask::Exactly(one) if one.count != Count::All)
            });
            let wanted = wanted.filter(|_| is_choice);
            let devices = wanted.and_then(|wanted| device_names(ask, view, wanted));
            if let Some(devices) = devices {
                // The engine chooses no devices of other drivers.
                let is_meant = |driver: &str, _: &str, device: &str| {
                    driver != DRIVER || devices.contains(device)
                };
                let node = &view.node;
                let found = allocator.allocate_among(node, &claims, &is_meant, &mut String::new);
                if found.is_ok() {
                    return found;
                }
            }
            allocator.allocate(&view.node, &claims, &mut String::new)
        })?;
        let mut allocations = allocations.into_iter();
        for claim in &ask.claims {
            let allocation = match claim {
                AskedClaim::Allocated { .. } => None,
                AskedClaim::Wanted(_) => allocations.next(),
            };
            let claim = claim.claim();
            let allocation = allocation.map(|mut allocation| {
                set_share_ids(
                    &mut allocation,
                    &format!("{}/{}", claim.meta.uid, claim.meta.version),
                );
                pod_allocation.parts.extend(self.parts(node, &allocation));
                allocation_to_write(
                    allocation,
                    &claim.claim.requests,
                    &claim.config,
                    &self.class_objects,
                )
            });
            pod_allocation.claims.push(ClaimWrite { claim: Arc::clone(claim), allocation });
        }
        if let Some((extended, mut allocation)) = asked.extended.zip(allocations.next()) {
            set_share_ids(&mut allocation, &format!("{}/extended/{}", ask.pod, node));
            pod_allocation.parts.extend(self.parts(node, &allocation));
            let allocation =
                allocation_to_write(allocation, &extended.requests, &[], &self.class_objects);
            pod_allocation.extended = Some(ExtendedWrite { claim: extended, allocation });
        }
        pod_allocation.parts.sort_unstable();
        Ok(pod_allocation)
    }

    /// Assumes an allocation. It holds its devices until [`Self::bound`] or [`Self::forget`].
    /// Earlier assumptions for the pod are forgotten.
    pub fn assume(&mut self, pod_allocation: &PodAllocation) -> Invalidation {
        let mut uses = BTreeMap::new();
        for ClaimWrite { claim, .. } in &pod_allocation.claims {
            let is_listed =
                claim.reserved_for.iter().any(|consumer| *consumer.uid == *pod_allocation.pod);
            if !is_listed {
                uses.insert(claim.uid(), claim.meta.name.clone());
            }
        }
        let claims = assumed_claims(pod_allocation);
        let changed = self.assume_cache.assume(&pod_allocation.pod, claims, uses);
        self.holdings(changed)
    }

    /// Reserves the devices of an allocation for a nominated pod. Its victims may still hold them.
    /// As they become free, no other pod gets them but by [`Self::allocate_lent`].
    pub fn reserve_nominated(&mut self, pod_allocation: &PodAllocation) -> Invalidation {
        let claims = assumed_claims(pod_allocation);
        let claims = claims.into_iter().map(|assumed| assumed.claim).collect();
        let pod = &pod_allocation.pod;
        let changed = self.assume_cache.reserve_nominated(pod, claims);
        self.holdings(changed)
    }

    /// Ends the reservation of a nominated pod.
    pub fn release_nominated(&mut self, pod: &str) -> Invalidation {
        let changed = self.assume_cache.release_nominated(pod);
        self.holdings(changed)
    }

    /// Whether devices are reserved for a nominated pod.
    pub fn has_nominated(&self, pod: &str) -> bool {
        self.assume_cache.has_nominated(pod)
    }

    /// A pod was bound. Its claims with these versions and later ones replace what is assumed for
    /// it.
    pub fn bound(&mut self, pod: &str, versions: ClaimVersions) -> Invalidation {
        let changed = self.assume_cache.replace(pod, ReplacedBy::Versions(versions));
        self.holdings(changed)
    }

    /// Another client has bound the pod, or may have: its claims that are observed allocated replace
    /// what is assumed for it.
    pub fn accept_observed(&mut self, pod: &str) -> Invalidation {
        let changed = self.assume_cache.replace(pod, ReplacedBy::Allocated);
        self.holdings(changed)
    }

    /// Transfers what a pod's operation was to allocate to one of these pods that uses the same
    /// claim.
    pub fn transfer_assumed(&mut self, pod: &str, successors: &BTreeSet<PodUid>) {
        self.assume_cache.transfer_assumed(pod, successors);
    }

    /// Forgets what is assumed for a pod. What was observed since stays.
    pub fn forget(&mut self, pod: &str) -> Invalidation {
        let changed = self.assume_cache.forget(pod);
        self.holdings(changed)
    }

    /// Whether anything is assumed for a pod and not observed yet.
    pub fn is_assumed(&self, pod: &str) -> bool {
        self.assume_cache.is_assumed(pod)
    }

    /// The claims to allocate on a node, with a toleration of Octavo's own taint.
    pub(super) fn wanted(&self, ask: &Ask, view: &NodeView) -> RequestedClaims {
        let extended = ask.extended_claim(self, &view.allocatable);
        let claims = ask.wanted().map(|claim: &Arc<Claim>| claim.claim.clone());
        let of_pod = extended.iter().map(|extended| extended.claim(&ask.namespace));
        let mut claims: Vec<octavo_dra::Claim> = claims.chain(of_pod).collect();
        for request in claims.iter_mut().flat_map(|claim| &mut claim.requests) {
            match &mut request.ask {
                octavo_dra::Ask::Exactly(one) => {
                    one.tolerations.push(self.own_toleration.clone());
                }
                octavo_dra::Ask::FirstAvailable(all) => {
                    for (_, one) in all {
                        one.tolerations.push(self.own_toleration.clone());
                    }
                }
            }
        }
        RequestedClaims { claims, extended }
    }

    /// Runs an allocator of a node's devices beside these holders and claims.
    pub(super) fn with_allocator<T>(
        &self,
        view: &NodeView,
        holders: Holders<'_>,
        beside: &[AssumedClaim],
        with: impl FnOnce(&Allocator<'_>) -> T,
    ) -> T {
        let pools = view.pools.iter().filter_map(|name| self.pools.pool(name));
        let slices = pools.flat_map(Pool::slices);
        let survey =
            view.survey.get_or_init(|| Arc::new(SliceIndex::new(slices.clone(), self.features)));
        let holders = self.assume_cache.holders(&view.pools, holders);
        let holders = holders.chain(beside.iter().map(|assumed| &assumed.claim));
        with(&Allocator::with_slice_index(&self.classes, slices, survey, holders))
    }
}

/// The allocation on a node without devices: empty, or an error if devices are requested.
fn without_devices(ask: &Ask, node: &str) -> Result<PodAllocation, PodAllocationError> {
    if ask.wanted().next().is_some() || !ask.extended.is_empty() {
        return Err(PodAllocationError::UnknownNode(node.into()));
    }
    let claims = ask
        .claims
        .iter()
        .map(|claim| ClaimWrite { claim: Arc::clone(claim.claim()), allocation: None });
    Ok(PodAllocation {
        pod: ask.pod.clone(),
        namespace: Arc::clone(&ask.namespace),
        node: node.into(),
        claims: claims.collect(),
        extended: None,
        parts: GpuParts::new(),
    })
}

/// Names of the devices that are these parts of a node's GPUs.
fn device_names<'d>(
    ask: &Ask,
    view: &'d NodeView,
    wanted: &[GpuPart],
) -> Option<BTreeSet<&'d str>> {
    let gpus = view.gpus.as_ref().ok()?.as_ref()?;
    let mut device_names = BTreeSet::new();
    for part in wanted {
        let profile = match &ask.demand {
            GpuDemand::Mig { profile, .. } => Some(&**profile),
            _ => None,
        };
        let profile = profile.filter(|_| !part.slices.is_empty());
        device_names.insert(gpus.devices.device(part, profile)?);
    }
    Some(device_names)
}

/// The claims that an allocation allocates, as assumptions.
fn assumed_claims(pod_allocation: &PodAllocation) -> Vec<AssumedClaim> {
    let of_claims = pod_allocation.claims.iter().filter_map(|ClaimWrite { claim, allocation }| {
        let allocation = &allocation.as_ref()?.allocation;
        Some(assumed(pod_allocation, ClaimKey::of(claim), &claim.claim, allocation))
    });
    let extended = pod_allocation.extended.iter().map(|extended| {
        let claim = extended.claim.claim(&pod_allocation.namespace);
        let key = ClaimKey::extended(&pod_allocation.pod);
        assumed(pod_allocation, key, &claim, &extended.allocation.allocation)
    });
    of_claims.chain(extended).collect()
}

fn assumed(
    pod_allocation: &PodAllocation,
    key: ClaimKey,
    claim: &octavo_dra::Claim,
    allocation: &Allocation,
) -> AssumedClaim {
    let claim = octavo_dra::Claim {
        namespace: claim.namespace.clone(),
        name: claim.name.clone(),
        uid: key.to_string(),
        allocation: Some(allocation.clone()),
        ..octavo_dra::Claim::default()
    };
    AssumedClaim { claim, pod: pod_allocation.pod.clone(), key }
}

/// Sets the share IDs of an allocation. A retry of the same attempt gets the same IDs.
fn set_share_ids(allocation: &mut Allocation, claim: &str) {
    for (index, result) in allocation.results.iter_mut().enumerate() {
        if result.share_id.is_some() {
            let name = format!("{claim}/{}/{index}", result.request);
            result.share_id = Some(Uuid::new_v5(&SHARE_ID_NAMESPACE, name.as_bytes()).to_string());
        }
    }
}

/// The toleration of the taint with which the agent keeps other schedulers than this one away.
pub(super) fn own_toleration(scheduler: &str) -> Toleration {
    Toleration {
        key: Some(TAINT_OWNER.to_owned()),
        value: Some(scheduler.to_owned()),
        effect: Some(TaintEffect::NoSchedule),
        seconds: None,
    }
}
