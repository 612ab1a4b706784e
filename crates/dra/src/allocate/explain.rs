//! Why a pod gets nothing on a node, device by device.

use super::Allocator;
use super::obstacle::Obstacle;
use super::plan::{ClaimPlan, plan};
use super::reason::Reason;
use super::refusal::{ClaimRef, DeviceRef, Refusal};
use super::scene::{Candidate, Scene};
use super::search::Search;
use super::tentative::{Place, Tentative};
use crate::claim::{Claim, Count};
use crate::node::Node;
use crate::pools::PoolState;

/// What stands between a pod's claims and a node's devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanation {
    /// Why there is no allocation; `None`: there is one.
    pub refusal: Option<Refusal>,
    /// Each request, or each of its alternatives, as if it were alone.
    pub requests: Vec<RequestExplanation>,
    /// Where they stand in one another's way, if each could be served alone.
    pub clash: Option<Clash>,
}

/// What stands between a request and a node's devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestExplanation {
    /// The claim.
    pub claim: ClaimRef,
    /// `<request>` or `<request>/<alternative>`.
    pub request: String,
    /// How many devices are wanted.
    pub wanted: Count,
    /// The devices of the node's pools, in the order in which they are tried.
    pub devices: Vec<DeviceVerdict>,
}

/// What stands between a request and a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceVerdict {
    /// The device.
    pub device: DeviceRef,
    /// The first reason against it. What lasts comes first: selectors and nodes, then who has it,
    /// capacity, counters, taints and constraints. `None`: the request could have it.
    pub reason: Option<Reason>,
}

/// How far a search came before requests stood in one another's way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// What was placed, in order.
    pub placed: Vec<Placed>,
    /// The request that could not be served beside them.
    pub request: RequestExplanation,
}

/// A device that a search had placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The claim that it is for.
    pub claim: ClaimRef,
    /// `<request>` or `<request>/<alternative>`.
    pub request: String,
    /// The device.
    pub device: DeviceRef,
}

impl RequestExplanation {
    /// Whether enough devices are left for the request by itself.
    pub fn is_enough(&self) -> bool {
        let free = self.devices.iter().filter(|verdict| verdict.reason.is_none()).count();
        match self.wanted {
            Count::Exactly(wanted) => u64::try_from(free).is_ok_and(|free| free >= wanted),
            // Devices that are not wanted do not matter, all others must be free.
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

impl Reason {
    /// Whether the request itself leaves the device out.
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

/// Explains a pod's claims on a node.
pub(super) fn explain(allocator: &Allocator<'_>, node: &Node, claims: &[&Claim]) -> Explanation {
    let refused = |refusal| Explanation { refusal: Some(refusal), ..Explanation::default() };
    let scene = match Scene::new(allocator, node) {
        Ok(scene) => scene,
        Err(refusal) => return refused(refusal),
    };
    let claims = match plan(&scene, claims) {
        Ok(claims) => claims,
        Err(refusal) => return refused(refusal),
    };
    let mut search = Search::new(&scene, &claims);
    let refusal = search.run().err();
    let nothing = Tentative::new(&scene, &claims);
    let requests: Vec<RequestExplanation> =
        places(&claims).map(|place| explain_request(&scene, &claims, &nothing, place)).collect();
    let is_about_devices = matches!(refusal, Some(Refusal::NoFit | Refusal::InvalidPool { .. }));
    let clash = (is_about_devices && is_each_served(&claims, &requests))
        .then(|| clash(&scene, &claims, &search))
        .flatten();
    Explanation { refusal, requests, clash }
}

/// All requests and alternatives.
fn places<'s>(claims: &'s [ClaimPlan<'s>]) -> impl Iterator<Item = Place<'s>> {
    claims.iter().enumerate().flat_map(|(claim, plan)| {
        plan.requests.iter().flat_map(move |request| {
            request.alternatives.iter().map(move |wanted| Place { claim, request, wanted })
        })
    })
}

/// Whether each request could be served if it were alone.
fn is_each_served(claims: &[ClaimPlan<'_>], explained: &[RequestExplanation]) -> bool {
    let mut explained = explained.iter();
    claims.iter().flat_map(|plan| &plan.requests).all(|request| {
        let alternatives = explained.by_ref().take(request.alternatives.len());
        alternatives.filter(|one| one.is_enough()).count() > 0
    })
}

/// Where the search came furthest.
fn clash<'s, 'a: 's>(
    scene: &'s Scene<'s, 'a>,
    claims: &'s [ClaimPlan<'s>],
    search: &Search<'s, 'a>,
) -> Option<Clash> {
    let place = search.furthest.place?;
    let mut state = Tentative::new(scene, claims);
    let mut placed = Vec::new();
    for &(place, candidate) in &search.furthest.picks {
        state.take(place, candidate);
        placed.push(Placed {
            claim: ClaimRef::of(claims[place.claim].claim),
            request: place.name(),
            device: scene.device_ref(candidate.device),
        });
    }
    Some(Clash { placed, request: explain_request(scene, claims, &state, place) })
}

fn explain_request<'s, 'a: 's>(
    scene: &Scene<'s, 'a>,
    claims: &[ClaimPlan<'s>],
    state: &Tentative<'s, 'a>,
    place: Place<'s>,
) -> RequestExplanation {
    let inventory = &scene.allocator.inventory;
    let mut devices = Vec::new();
    for pool in &scene.pools {
        for device in pool.slices.iter().flat_map(|&slice| inventory.devices_of[slice].clone()) {
            let at =
                Candidate { device, edition: pool.edition, id: inventory.published(device).id };
            let reason = match &pool.state {
                PoolState::Ready => judge(scene, state, place, at)
                    .err()
                    .map(|obstacle| Reason::new(obstacle, scene, claims, state, at)),
                PoolState::Incomplete => Some(Reason::PoolIncomplete),
                PoolState::Invalid(defect) => Some(Reason::PoolInvalid(defect.clone())),
            };
            devices.push(DeviceVerdict { device: scene.device_ref(device), reason });
        }
    }
    RequestExplanation {
        claim: ClaimRef::of(claims[place.claim].claim),
        request: place.name(),
        wanted: place.wanted.ask.count,
        devices,
    }
}

/// As the search judges, but that somebody has a device says nothing to who does not want it.
fn judge<'s, 'a: 's>(
    scene: &Scene<'s, 'a>,
    state: &Tentative<'s, 'a>,
    place: Place<'s>,
    at: Candidate,
) -> Result<(), Obstacle<'s>> {
    scene.select(place.wanted, at.device)?;
    state.judge(place, at, true)
}
