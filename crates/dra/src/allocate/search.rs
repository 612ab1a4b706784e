//! The search: first fit, depth first, in the order of Kubernetes.
//!
//! Claims, their requests and each request's devices are served one after the other. What does not
//! work out is given back and the next device tried, never in another order within one request: that
//! would be the same choice again. An alternative of a list is left when it does not work out *with
//! all that follows*.
//!
//! Two bounds cut what could not succeed, and never what could: a request gives up when fewer
//! devices are left that fit by themselves than it still needs; and after many steps each request is
//! looked at alone once.

use super::obstacle::Obstacle;
use super::plan::{Alternative, ClaimPlan, RequestPlan, fatal};
use super::refusal::{RESULTS_PER_CLAIM, Refusal, RequestFault};
use super::scene::{Candidate, Scene};
use super::tentative::{Place, Tentative};
use crate::claim::Claim;
use crate::features::Feature;

/// Steps after which each request is looked at alone.
const STEPS_BEFORE_BOUND: u64 = 1000;

/// A search for one pod on one node.
pub(super) struct Search<'s, 'a> {
    scene: &'s Scene<'s, 'a>,
    claims: &'s [ClaimPlan<'s>],
    pub(super) state: Tentative<'s, 'a>,
    steps: u64,
    /// The furthest point that was reached.
    pub(super) furthest: Furthest<'s>,
}

/// How far a search came.
#[derive(Clone, Default)]
pub(super) struct Furthest<'s> {
    /// Claim, request, devices of the request.
    reached: (usize, usize, usize),
    /// What was taken until then.
    pub(super) picks: Vec<(Place<'s>, Candidate)>,
    /// What could not be taken any more.
    pub(super) place: Option<Place<'s>>,
}

/// Why a search ends without an answer to the question that was asked.
enum Stop {
    /// A claim would have too many results: other alternatives may need fewer.
    TooMany,
    /// It is hopeless, or given up.
    Refusal(Refusal),
}

/// What is to be taken next.
#[derive(Clone, Copy, Default)]
struct At {
    claim: usize,
    request: usize,
    alternative: usize,
    device: usize,
    /// Whether the alternative is chosen.
    is_chosen: bool,
    /// The first candidate to try.
    from: usize,
}

impl<'s, 'a: 's> Search<'s, 'a> {
    pub(super) fn new(scene: &'s Scene<'s, 'a>, claims: &'s [ClaimPlan<'s>]) -> Self {
        let state = Tentative::new(scene, claims);
        Self { scene, claims, state, steps: 0, furthest: Furthest::default() }
    }

    /// Takes devices for all claims.
    pub(super) fn run(&mut self) -> Result<(), Refusal> {
        match self.serve(At::default()) {
            Ok(true) => Ok(()),
            Ok(false) | Err(Stop::TooMany) => {
                Err(self.scene.invalid_pool().unwrap_or(Refusal::NoFit))
            }
            Err(Stop::Refusal(refusal)) => Err(refusal),
        }
    }

    /// Serves all that is to be taken from here on.
    fn serve(&mut self, at: At) -> Result<bool, Stop> {
        self.step()?;
        let claims = self.claims;
        let Some(claim) = claims.get(at.claim) else { return Ok(true) };
        let Some(request) = claim.requests.get(at.request) else {
            // What is too much for the next claim is no reason to leave alternatives of this one.
            return match self.serve(At { claim: at.claim + 1, ..At::default() }) {
                Err(Stop::TooMany) => Ok(false),
                other => other,
            };
        };
        if request.is_list && !at.is_chosen {
            return self.serve_first_available(at, request);
        }
        let Some(wanted) = request.alternatives.get(at.alternative) else { return Ok(false) };
        if wanted.all.as_ref().is_some_and(Vec::is_empty) {
            return Ok(false);
        }
        if at.device >= wanted.wanted {
            return self.serve(At { claim: at.claim, request: at.request + 1, ..At::default() });
        }
        let results = self.state.picks[at.claim].len();
        if results.saturating_add(wanted.wanted).saturating_sub(at.device) > RESULTS_PER_CLAIM {
            return Err(Stop::TooMany);
        }
        let place = Place { claim: at.claim, request, wanted };
        self.remember(at, place);
        match wanted.all.as_ref().map(|all| all[at.device]) {
            Some(candidate) => self.serve_one_of_all(at, place, candidate),
            None => self.serve_any(at, place, claim.claim),
        }
    }

    /// Serves a list with the first of its alternatives that works out.
    fn serve_first_available(&mut self, at: At, request: &RequestPlan<'s>) -> Result<bool, Stop> {
        let mut is_all_too_many = true;
        for alternative in 0..request.alternatives.len() {
            match self.serve(At { alternative, is_chosen: true, ..at }) {
                Err(Stop::TooMany) => {}
                Ok(false) => is_all_too_many = false,
                other => return other,
            }
        }
        if is_all_too_many { Err(Stop::TooMany) } else { Ok(false) }
    }

    /// Takes one of a request for all devices. It must be this one.
    fn serve_one_of_all(
        &mut self,
        at: At,
        place: Place<'s>,
        candidate: Candidate,
    ) -> Result<bool, Stop> {
        let state = &self.state;
        let obstacle = state
            .is_free(place, candidate)
            .and_then(|()| state.has_counters(candidate))
            .and_then(|()| self.scene.tolerate(place.wanted, candidate.device))
            .and_then(|()| state.is_in_line(place, candidate))
            .and_then(|()| state.has_capacity(place, candidate));
        match obstacle {
            Ok(()) => {}
            Err(Obstacle::Rule(rule)) => {
                let device = self.scene.device_ref(candidate.device);
                let fault = RequestFault::ConstraintOfAll { device, rule: rule.clone() };
                let request = place.name();
                let claim = self.claims[at.claim].claim;
                return Err(Stop::Refusal(Refusal::request(claim, request, fault)));
            }
            Err(_) => return Ok(false),
        }
        self.state.take(place, candidate);
        let result = self.serve(At { device: at.device + 1, ..at });
        if !matches!(result, Ok(true)) {
            self.state.give_back(at.claim);
        }
        result
    }

    /// Takes the first device with which all that follows works out.
    fn serve_any(&mut self, at: At, place: Place<'s>, claim: &Claim) -> Result<bool, Stop> {
        if !self.is_enough(place, claim, at.from, place.wanted.wanted - at.device)? {
            return Ok(false);
        }
        let scene = self.scene;
        for (index, &candidate) in scene.candidates.iter().enumerate().skip(at.from) {
            if !self.fits(place, claim, candidate, true)? {
                continue;
            }
            self.step()?;
            self.state.take(place, candidate);
            match self.serve(At { device: at.device + 1, from: index + 1, ..at }) {
                Ok(false) => self.state.give_back(at.claim),
                Err(stop) => {
                    self.state.give_back(at.claim);
                    return Err(stop);
                }
                Ok(true) => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Whether enough devices are left that fit by themselves.
    fn is_enough(
        &self,
        place: Place<'s>,
        claim: &Claim,
        from: usize,
        wanted: usize,
    ) -> Result<bool, Stop> {
        // Who forgets values may later admit what is not admitted now.
        let has_rules = !self.scene.has(Feature::KubernetesFaults);
        let mut count = 0;
        for &candidate in self.scene.candidates.iter().skip(from) {
            if count == wanted {
                break;
            }
            count += usize::from(self.fits(place, claim, candidate, has_rules)?);
        }
        Ok(count == wanted)
    }

    /// Whether nothing stands between a request and a device.
    fn fits(
        &self,
        place: Place<'s>,
        claim: &Claim,
        candidate: Candidate,
        has_rules: bool,
    ) -> Result<bool, Stop> {
        match self.state.judge(place, candidate, has_rules) {
            Ok(()) => Ok(true),
            Err(obstacle) => match fatal(&obstacle, claim, || place.name()) {
                Some(refusal) => Err(Stop::Refusal(refusal)),
                None => Ok(false),
            },
        }
    }

    fn step(&mut self) -> Result<(), Stop> {
        self.steps += 1;
        let limit = self.scene.allocator.steps;
        if self.steps > limit {
            return Err(Stop::Refusal(Refusal::Steps { limit }));
        }
        if self.steps == STEPS_BEFORE_BOUND && self.is_hopeless() {
            let refusal = self.scene.invalid_pool().unwrap_or(Refusal::NoFit);
            return Err(Stop::Refusal(refusal));
        }
        Ok(())
    }

    /// Whether a request cannot be served even if it were alone.
    fn is_hopeless(&self) -> bool {
        let nothing = Self::new(self.scene, self.claims);
        let can_serve =
            |claim: usize, request: &'s RequestPlan<'s>, wanted: &'s Alternative<'s>| {
                let place = Place { claim, request, wanted };
                if let Some(all) = &wanted.all {
                    return all.iter().all(|&one| nothing.state.is_free(place, one).is_ok());
                }
                let plan = self.claims[claim].claim;
                nothing.is_enough(place, plan, 0, wanted.wanted).unwrap_or(true)
            };
        self.claims.iter().enumerate().any(|(claim, plan)| {
            let is_served = |request: &'s RequestPlan<'s>| {
                request.alternatives.iter().any(|wanted| can_serve(claim, request, wanted))
            };
            !plan.requests.iter().all(is_served)
        })
    }

    /// Remembers the furthest point.
    fn remember(&mut self, at: At, place: Place<'s>) {
        let reached = (at.claim, at.request, at.device);
        if self.furthest.place.is_some() && reached <= self.furthest.reached {
            return;
        }
        let picks = self.state.picks.iter().flatten();
        let picks = picks.map(|pick| (pick.place, pick.candidate)).collect();
        self.furthest = Furthest { reached, picks, place: Some(place) };
    }
}
