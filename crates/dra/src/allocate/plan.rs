//! The claims of a pod, resolved and checked before the search.

use std::sync::Arc;

use super::Allocator;
use super::error::{AllocateError, ClaimRef, MAX_RESULTS_PER_CLAIM, RequestError};
use super::mismatch::Mismatch;
use super::node_context::{Candidate, NodeContext};
use super::verdict_cache::Verdicts;
use crate::claim::{Ask, Claim, Count, DeviceRequest, Request};
use crate::features::Feature;
use crate::pools::PoolState;

/// A claim of the pod.
pub(super) struct ClaimPlan<'s> {
    pub(super) claim: &'s Claim,
    pub(super) requests: Vec<RequestPlan<'s>>,
}

/// A request with its alternatives.
pub(super) struct RequestPlan<'s> {
    pub(super) name: &'s str,
    /// Whether the request is a list of alternatives, even of one.
    pub(super) is_list: bool,
    pub(super) alternatives: Vec<Alternative<'s>>,
}

/// One alternative of a request.
pub(super) struct Alternative<'s> {
    /// Name of the alternative, in a list.
    pub(super) name: Option<&'s str>,
    pub(super) ask: &'s DeviceRequest,
    pub(super) class: &'s str,
    pub(super) class_selectors: Vec<Arc<Verdicts>>,
    pub(super) selectors: Vec<Arc<Verdicts>>,
    /// Number of devices.
    pub(super) wanted: usize,
    /// The devices of a request for all matching ones.
    pub(super) all: Option<Vec<Candidate>>,
}

impl RequestPlan<'_> {
    /// `<request>` or `<request>/<alternative>`.
    pub(super) fn full_name(&self, alternative: &Alternative<'_>) -> String {
        full_name(self.name, alternative.name)
    }
}

/// Resolves and checks the claims of a pod.
pub(super) fn plan<'s, 'a: 's>(
    context: &NodeContext<'s, 'a>,
    claims: &'s [&'s Claim],
) -> Result<Vec<ClaimPlan<'s>>, AllocateError> {
    let mut plans = Vec::with_capacity(claims.len());
    for &claim in claims {
        let mut min_devices: usize = 0;
        let mut requests = Vec::with_capacity(claim.requests.len());
        for request in &claim.requests {
            let request = plan_request(context, claim, request)?;
            let wanted = request.alternatives.iter().map(|one| one.wanted).min();
            min_devices = min_devices.saturating_add(wanted.unwrap_or(0));
            requests.push(request);
        }
        if min_devices > MAX_RESULTS_PER_CLAIM {
            let is_node_specific = requests
                .iter()
                .flat_map(|request: &RequestPlan<'_>| &request.alternatives)
                .any(|one| one.all.is_some());
            let claim = ClaimRef::of(claim);
            return Err(AllocateError::TooManyDevices {
                claim,
                wanted: min_devices,
                is_node_specific,
            });
        }
        plans.push(ClaimPlan { claim, requests });
    }
    Ok(plans)
}

fn plan_request<'s, 'a: 's>(
    context: &NodeContext<'s, 'a>,
    claim: &'s Claim,
    request: &'s Request,
) -> Result<RequestPlan<'s>, AllocateError> {
    let off = |feature| {
        let error = RequestError::FeatureOff(feature);
        Err(AllocateError::request(claim, request.name.clone(), error))
    };
    let (is_list, asks): (bool, Vec<(Option<&str>, &DeviceRequest)>) = match &request.ask {
        Ask::Exactly(ask) => (false, vec![(None, ask)]),
        Ask::FirstAvailable(list) => {
            (true, list.iter().map(|(name, ask)| (Some(name.as_str()), ask)).collect())
        }
    };
    if is_list && !context.has(Feature::PrioritizedList) {
        return off(Feature::PrioritizedList);
    }
    let check_capacity = asks.iter().any(|(_, ask)| !ask.capacity.is_empty());
    if check_capacity && !context.has(Feature::ConsumableCapacity) {
        return off(Feature::ConsumableCapacity);
    }
    let alternatives = asks
        .into_iter()
        .map(|(name, ask)| {
            plan_alternative(context, name, ask).map_err(|error| match error {
                PlanError::AllocateError(error) => error,
                PlanError::Request(error) => {
                    AllocateError::request(claim, full_name(&request.name, name), error)
                }
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(RequestPlan { name: &request.name, is_list, alternatives })
}

/// Why an alternative cannot be resolved.
enum PlanError {
    AllocateError(AllocateError),
    Request(RequestError),
}

fn plan_alternative<'s, 'a: 's>(
    context: &NodeContext<'s, 'a>,
    name: Option<&'s str>,
    ask: &'s DeviceRequest,
) -> Result<Alternative<'s>, PlanError> {
    if ask.admin_access && !context.has(Feature::AdminAccess) {
        return Err(PlanError::Request(RequestError::FeatureOff(Feature::AdminAccess)));
    }
    let Allocator { inventory, slice_index, .. } = context.allocator;
    let class = context.allocator.classes.class(&ask.class);
    let class =
        class.ok_or_else(|| PlanError::Request(RequestError::UnknownClass(ask.class.clone())))?;
    let verdicts = |selectors: &[String]| {
        selectors.iter().map(|one| slice_index.verdict_cache.verdicts(inventory, one)).collect()
    };
    let mut alternative = Alternative {
        name,
        ask,
        class: &class.name,
        class_selectors: verdicts(&class.selectors),
        selectors: verdicts(&ask.selectors),
        wanted: 0,
        all: None,
    };
    match ask.count {
        Count::Exactly(count) => {
            alternative.wanted = usize::try_from(count).unwrap_or(usize::MAX);
        }
        Count::All => {
            let all = all(context, &alternative)?;
            alternative.wanted = all.len();
            alternative.all = Some(all);
        }
    }
    Ok(alternative)
}

/// All matching devices. Every pool must be complete and valid, or a device could be missing.
fn all(
    context: &NodeContext<'_, '_>,
    wanted: &Alternative<'_>,
) -> Result<Vec<Candidate>, PlanError> {
    let mut all = Vec::new();
    for (pool, candidates) in context.pools.iter().zip(&context.candidates_by_pool) {
        let name = || context.allocator.inventory.pool_ref_of(pool.generation);
        match &pool.state {
            PoolState::Ready => {}
            PoolState::Incomplete => {
                return Err(PlanError::Request(RequestError::PoolIncomplete(name())));
            }
            PoolState::Invalid(defect) => {
                let defect = defect.clone();
                return Err(PlanError::Request(RequestError::PoolInvalid { pool: name(), defect }));
            }
        }
        for &candidate in &context.candidates[candidates.clone()] {
            match context.check_selectors(wanted, candidate.device) {
                Ok(()) => {}
                Err(mismatch) => match plan_error(&mismatch) {
                    Some(error) => return Err(error),
                    None => continue,
                },
            }
            if context.check_capacity(wanted, candidate.device, |_| 0).is_ok() {
                all.push(candidate);
            }
        }
    }
    Ok(all)
}

/// The error behind a mismatch that no other device avoids.
fn plan_error(mismatch: &Mismatch<'_>) -> Option<PlanError> {
    match mismatch {
        Mismatch::Cel { class, error } => {
            let class = class.map(str::to_owned);
            Some(PlanError::Request(RequestError::Cel { class, error: error.clone() }))
        }
        Mismatch::NodeSelector(slice, error) => {
            Some(PlanError::AllocateError(AllocateError::NodeSelector {
                slice: (*slice).to_owned(),
                error: error.clone(),
            }))
        }
        _ => None,
    }
}

/// The error behind a mismatch that no other device avoids, for a claim's request.
pub(super) fn fatal_error(
    mismatch: &Mismatch<'_>,
    claim: &Claim,
    request: impl FnOnce() -> String,
) -> Option<AllocateError> {
    Some(match plan_error(mismatch)? {
        PlanError::AllocateError(error) => error,
        PlanError::Request(error) => AllocateError::request(claim, request(), error),
    })
}

fn full_name(request: &str, alternative: Option<&str>) -> String {
    match alternative {
        Some(alternative) => format!("{request}/{alternative}"),
        None => request.to_owned(),
    }
}
