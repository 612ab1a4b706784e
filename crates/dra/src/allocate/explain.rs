//! Explains, device by device, why a pod cannot be allocated on a node.

use super::Allocator;
use super::device_mismatch::DeviceMismatch;
use super::error::{AllocateError, ClaimRef, DeviceRef};
use super::mismatch::Mismatch;
use super::node_context::{Candidate, NodeContext};
use super::partial_allocation::{PartialAllocation, Target};
use super::plan::{ClaimPlan, plan};
use super::search::Search;
use crate::claim::{Claim, Count};
use crate::node::Node;
use crate::pools::PoolState;

/// Why the claims of a pod cannot be allocated on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Why there is no allocation; `None` if there is one.
    pub error: Option<AllocateError>,
    /// Each request, or each alternative of a list, evaluated alone.
    pub requests: Vec<RequestExplanation>,
    /// The conflict between requests, if each of them could be satisfied alone.
    pub clash: Option<Clash>,
}

/// A request and the verdict on each device of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestExplanation {
    /// The claim.
    pub claim: ClaimRef,
    /// `<request>` or `<request>/<alternative>`.
    pub request: String,
    /// Number of requested devices.
    pub wanted: Count,
    /// The devices of the node's pools, in search order.
    pub devices: Vec<DeviceVerdict>,
}

/// A device and why the request cannot have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceVerdict {
    /// The device.
    pub device: DeviceRef,
    /// The first mismatch; `None` if the request could have the device. Permanent mismatches come
    /// first (selectors, nodes), then use by others, capacity, counters, taints and constraints.
    pub reason: Option<DeviceMismatch>,
}

/// The point at which requests came into conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// The devices chosen before, in order.
    pub placed: Vec<Placed>,
    /// The request that could not be satisfied beside them.
    pub request: RequestExplanation,
}

/// A device that the search had chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The claim that would hold it.
    pub claim: ClaimRef,
    /// `<request>` or `<request>/<alternative>`.
    pub request: String,
    /// The device.
    pub device: DeviceRef,
}

impl RequestExplanation {
    /// Whether enough devices are free for the request alone.
    pub fn is_enough(&self) -> bool {
        let free = self.devices.iter().filter(|verdict| verdict.reason.is_none()).count();
        match self.wanted {
            Count::Exactly(wanted) => u64::try_from(free).is_ok_and(|free| free >= wanted),
            // Devices that the request excludes do not matter; all others must be free.
            Count::All => {
                free > 0
                    && self.devices.iter().all(|verdict| match &verdict.reason {
                        None => true,
                        Some(reason) => reason.is_choice(),
                    })
            }
        }
    }
}

impl DeviceMismatch {
    /// Whether the request itself excludes the device.
    fn is_choice(&self) -> bool {
        matches!(
            self,
            Self::ClassSelector { .. }
                | Self::RequestSelector { .. }
                | Self::OtherNode
                | Self::CapacityUnknown { .. }
                | Self::CapacityOutsidePolicy { .. }
                | Self::CapacityShort { .. }
        )
    }
}

/// Explains the claims of a pod on a node.
pub(super) fn explain(allocator: &Allocator<'_>, node: &Node, claims: &[&Claim]) -> Explanation {
    let refused = |error| Explanation { error: Some(error), ..Explanation::default() };
    let context = match NodeContext::new(allocator, node) {
        Ok(context) => context,
        Err(error) => return refused(error),
    };
    let claims = match plan(&context, claims) {
        Ok(claims) => claims,
        Err(error) => return refused(error),
    };
    let mut search = Search::new(&context, &claims);
    let error = search.run().err();
    let nothing = PartialAllocation::new(&context, &claims);
    let requests: Vec<RequestExplanation> = targets(&claims)
        .map(|target| explain_request(&context, &claims, &nothing, target))
        .collect();
    let is_about_devices =
        matches!(error, Some(AllocateError::NoFit | AllocateError::InvalidPool { .. }));
    let clash = (is_about_devices && is_each_served(&claims, &requests))
        .then(|| clash(&context, &claims, &search))
        .flatten();
    Explanation { error, requests, clash }
}

/// All requests and alternatives.
fn targets<'s>(claims: &'s [ClaimPlan<'s>]) -> impl Iterator<Item = Target<'s>> {
    claims.iter().enumerate().flat_map(|(claim, plan)| {
        plan.requests.iter().flat_map(move |request| {
            request.alternatives.iter().map(move |wanted| Target { claim, request, wanted })
        })
    })
}

/// Whether each request could be satisfied alone.
fn is_each_served(claims: &[ClaimPlan<'_>], explained: &[RequestExplanation]) -> bool {
    let mut explained = explained.iter();
    claims.iter().flat_map(|plan| &plan.requests).all(|request| {
        let alternatives = explained.by_ref().take(request.alternatives.len());
        alternatives.filter(|one| one.is_enough()).count() > 0
    })
}

/// The furthest point of the search.
fn clash<'s, 'a: 's>(
    context: &'s NodeContext<'s, 'a>,
    claims: &'s [ClaimPlan<'s>],
    search: &Search<'s, 'a>,
) -> Option<Clash> {
    let target = search.furthest.target?;
    let mut state = PartialAllocation::new(context, claims);
    let mut placed = Vec::new();
    for &(target, candidate) in &search.furthest.picks {
        state.take(target, candidate);
        placed.push(Placed {
            claim: ClaimRef::of(claims[target.claim].claim),
            request: target.name(),
            device: context.device_ref(candidate.device),
        });
    }
    Some(Clash { placed, request: explain_request(context, claims, &state, target) })
}

fn explain_request<'s, 'a: 's>(
    context: &NodeContext<'s, 'a>,
    claims: &[ClaimPlan<'s>],
    state: &PartialAllocation<'s, 'a>,
    target: Target<'s>,
) -> RequestExplanation {
    let inventory = &context.allocator.inventory;
    let mut devices = Vec::new();
    for pool in &context.pools {
        for device in pool.slices.iter().flat_map(|&slice| inventory.devices_of[slice].clone()) {
            let at = Candidate {
                device,
                generation: pool.generation,
                id: inventory.published(device).id,
            };
            let reason = match &pool.state {
                PoolState::Ready => check_device(context, state, target, at)
                    .err()
                    .map(|mismatch| DeviceMismatch::new(mismatch, context, claims, state, at)),
                PoolState::Incomplete => Some(DeviceMismatch::PoolIncomplete),
                PoolState::Invalid(defect) => Some(DeviceMismatch::PoolInvalid(defect.clone())),
            };
            devices.push(DeviceVerdict { device: context.device_ref(device), reason });
        }
    }
    RequestExplanation {
        claim: ClaimRef::of(claims[target.claim].claim),
        request: target.name(),
        wanted: target.wanted.ask.count,
        devices,
    }
}

/// Checks in the order of the search, but selectors first: use by others is no reason for a device
/// that the request excludes.
fn check_device<'s, 'a: 's>(
    context: &NodeContext<'s, 'a>,
    state: &PartialAllocation<'s, 'a>,
    target: Target<'s>,
    at: Candidate,
) -> Result<(), Mismatch<'s>> {
    context.check_selectors(target.wanted, at.device)?;
    state.check_device(target, at, true)
}
