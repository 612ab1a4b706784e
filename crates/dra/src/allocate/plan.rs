//! The claims of a pod, looked up and checked before the search.

use std::sync::Arc;

use super::Allocator;
use super::obstacle::Obstacle;
use super::refusal::{ClaimRef, RESULTS_PER_CLAIM, Refusal, RequestFault};
use super::scene::{Candidate, Scene};
use super::selection::Verdicts;
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
    /// Whether it is a list of alternatives, even if of one.
    pub(super) is_list: bool,
    pub(super) alternatives: Vec<Alternative<'s>>,
}

/// One way of serving a request.
pub(super) struct Alternative<'s> {
    /// Name of the alternative, in a list.
    pub(super) name: Option<&'s str>,
    pub(super) ask: &'s DeviceRequest,
    pub(super) class: &'s str,
    pub(super) class_selectors: Vec<Arc<Verdicts>>,
    pub(super) selectors: Vec<Arc<Verdicts>>,
    /// How many devices it takes.
    pub(super) wanted: usize,
    /// The devices, where it takes all that match.
    pub(super) all: Option<Vec<Candidate>>,
}

impl RequestPlan<'_> {
    /// `<request>` or `<request>/<alternative>`.
    pub(super) fn full_name(&self, alternative: &Alternative<'_>) -> String {
        full_name(self.name, alternative.name)
    }
}

/// Looks up and checks the claims of a pod.
pub(super) fn plan<'s, 'a: 's>(
    scene: &Scene<'s, 'a>,
    claims: &'s [&'s Claim],
) -> Result<Vec<ClaimPlan<'s>>, Refusal> {
    let mut plans = Vec::with_capacity(claims.len());
    for &claim in claims {
        let mut least: usize = 0;
        let mut requests = Vec::with_capacity(claim.requests.len());
        for request in &claim.requests {
            let request = plan_request(scene, claim, request)?;
            let wanted = request.alternatives.iter().map(|one| one.wanted).min();
            least = least.saturating_add(wanted.unwrap_or(0));
            requests.push(request);
        }
        if least > RESULTS_PER_CLAIM {
            let is_of_node = requests
                .iter()
                .flat_map(|request: &RequestPlan<'_>| &request.alternatives)
                .any(|one| one.all.is_some());
            let claim = ClaimRef::of(claim);
            return Err(Refusal::TooManyDevices { claim, wanted: least, is_of_node });
        }
        plans.push(ClaimPlan { claim, requests });
    }
    Ok(plans)
}

fn plan_request<'s, 'a: 's>(
    scene: &Scene<'s, 'a>,
    claim: &'s Claim,
    request: &'s Request,
) -> Result<RequestPlan<'s>, Refusal> {
    let off = |feature| {
        let fault = RequestFault::FeatureOff(feature);
        Err(Refusal::request(claim, request.name.clone(), fault))
    };
    let (is_list, asks): (bool, Vec<(Option<&str>, &DeviceRequest)>) = match &request.ask {
        Ask::Exactly(ask) => (false, vec![(None, ask)]),
        Ask::FirstAvailable(list) => {
            (true, list.iter().map(|(name, ask)| (Some(name.as_str()), ask)).collect())
        }
    };
    if is_list && !scene.has(Feature::PrioritizedList) {
        return off(Feature::PrioritizedList);
    }
    let has_capacity = asks.iter().any(|(_, ask)| !ask.capacity.is_empty());
    if has_capacity && !scene.has(Feature::ConsumableCapacity) {
        return off(Feature::ConsumableCapacity);
    }
    let alternatives = asks
        .into_iter()
        .map(|(name, ask)| {
            plan_alternative(scene, name, ask).map_err(|fault| match fault {
                Fault::Refusal(refusal) => refusal,
                Fault::Request(fault) => {
                    Refusal::request(claim, full_name(&request.name, name), fault)
                }
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(RequestPlan { name: &request.name, is_list, alternatives })
}

/// Why an alternative cannot be planned.
enum Fault {
    Refusal(Refusal),
    Request(RequestFault),
}

fn plan_alternative<'s, 'a: 's>(
    scene: &Scene<'s, 'a>,
    name: Option<&'s str>,
    ask: &'s DeviceRequest,
) -> Result<Alternative<'s>, Fault> {
    if ask.admin_access && !scene.has(Feature::AdminAccess) {
        return Err(Fault::Request(RequestFault::FeatureOff(Feature::AdminAccess)));
    }
    let Allocator { inventory, survey, .. } = scene.allocator;
    let class = scene.allocator.classes.class(&ask.class);
    let class =
        class.ok_or_else(|| Fault::Request(RequestFault::UnknownClass(ask.class.clone())))?;
    let verdicts = |selectors: &[String]| {
        selectors.iter().map(|one| survey.selection.verdicts(inventory, one)).collect()
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
            let all = all(scene, &alternative)?;
            alternative.wanted = all.len();
            alternative.all = Some(all);
        }
    }
    Ok(alternative)
}

/// All devices that match. They have to be known all, so every pool must be in order.
fn all(scene: &Scene<'_, '_>, wanted: &Alternative<'_>) -> Result<Vec<Candidate>, Fault> {
    let mut all = Vec::new();
    for (pool, candidates) in scene.pools.iter().zip(&scene.of_pool) {
        let name = || scene.allocator.inventory.pool_ref_of(pool.edition);
        match &pool.state {
            PoolState::Ready => {}
            PoolState::Incomplete => {
                return Err(Fault::Request(RequestFault::PoolIncomplete(name())));
            }
            PoolState::Invalid(defect) => {
                let defect = defect.clone();
                return Err(Fault::Request(RequestFault::PoolInvalid { pool: name(), defect }));
            }
        }
        for &candidate in &scene.candidates[candidates.clone()] {
            match scene.select(wanted, candidate.device) {
                Ok(()) => {}
                Err(obstacle) => match fault(&obstacle) {
                    Some(fault) => return Err(fault),
                    None => continue,
                },
            }
            if scene.measure(wanted, candidate.device, |_| 0).is_ok() {
                all.push(candidate);
            }
        }
    }
    Ok(all)
}

/// The fault behind an obstacle that no other device gets around.
fn fault(obstacle: &Obstacle<'_>) -> Option<Fault> {
    match obstacle {
        Obstacle::Cel { class, error } => {
            let class = class.map(str::to_owned);
            Some(Fault::Request(RequestFault::Cel { class, error: error.clone() }))
        }
        Obstacle::NodeSelector(slice, error) => Some(Fault::Refusal(Refusal::NodeSelector {
            slice: (*slice).to_owned(),
            error: error.clone(),
        })),
        _ => None,
    }
}

/// The refusal behind an obstacle that no other device gets around.
pub(super) fn fatal(
    obstacle: &Obstacle<'_>,
    claim: &Claim,
    request: impl FnOnce() -> String,
) -> Option<Refusal> {
    Some(match fault(obstacle)? {
        Fault::Refusal(refusal) => refusal,
        Fault::Request(fault) => Refusal::request(claim, request(), fault),
    })
}

fn full_name(request: &str, alternative: Option<&str>) -> String {
    match alternative {
        Some(alternative) => format!("{request}/{alternative}"),
        None => request.to_owned(),
    }
}
