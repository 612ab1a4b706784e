//! The search: first fit, depth first, in the order of Kubernetes.
//!
//! It serves claims, their requests and the devices of each request one after another. It undoes a
//! choice that leads nowhere and tries the next device. It never tries another order within one
//! request, which would be the same choice again. It leaves an alternative of a list only when *all
//! that follows* fails.
//!
//! Two bounds cut branches that cannot succeed. A request gives up when fewer devices fit alone
//! than it still needs. After [`STEPS_BEFORE_BOUND`] steps each request is checked alone once.

use super::error::{AllocateError, MAX_RESULTS_PER_CLAIM, RequestError};
use super::mismatch::Mismatch;
use super::node_context::{Candidate, NodeContext};
use super::partial_allocation::{PartialAllocation, Target};
use super::plan::{Alternative, ClaimPlan, RequestPlan, fatal_error};
use crate::claim::Claim;
use crate::features::Feature;

/// Steps after which the search checks each request alone.
const STEPS_BEFORE_BOUND: u64 = 1000;

/// A search for one pod on one node.
pub(super) struct Search<'s, 'a> {
    context: &'s NodeContext<'s, 'a>,
    claims: &'s [ClaimPlan<'s>],
    pub(super) state: PartialAllocation<'s, 'a>,
    steps: u64,
    /// The furthest point of the search.
    pub(super) furthest: Furthest<'s>,
}

/// The furthest point of a search.
#[derive(Clone, Default)]
pub(super) struct Furthest<'s> {
    /// Index of claim, request and device.
    reached: (usize, usize, usize),
    /// The devices taken up to that point.
    pub(super) picks: Vec<(Target<'s>, Candidate)>,
    /// The target that could not be served.
    pub(super) target: Option<Target<'s>>,
}

/// Why a branch of the search ends.
enum Stop {
    /// A claim would exceed the limit of results; other alternatives may need fewer.
    TooMany,
    /// The whole search ends.
    AllocateError(AllocateError),
}

/// The next choice of the search.
#[derive(Clone, Copy, Default)]
struct Cursor {
    claim: usize,
    request: usize,
    alternative: usize,
    device: usize,
    /// Whether an alternative of the list is chosen.
    is_chosen: bool,
    /// Index of the first candidate to try.
    from: usize,
}

impl<'s, 'a: 's> Search<'s, 'a> {
    pub(super) fn new(context: &'s NodeContext<'s, 'a>, claims: &'s [ClaimPlan<'s>]) -> Self {
        let state = PartialAllocation::new(context, claims);
        Self { context, claims, state, steps: 0, furthest: Furthest::default() }
    }

    /// Chooses devices for all claims.
    pub(super) fn run(&mut self) -> Result<(), AllocateError> {
        match self.serve(Cursor::default()) {
            Ok(true) => Ok(()),
            Ok(false) | Err(Stop::TooMany) => {
                Err(self.context.invalid_pool().unwrap_or(AllocateError::NoFit))
            }
            Err(Stop::AllocateError(error)) => Err(error),
        }
    }

    /// Serves everything from this choice on.
    fn serve(&mut self, at: Cursor) -> Result<bool, Stop> {
        self.step()?;
        let claims = self.claims;
        let Some(claim) = claims.get(at.claim) else { return Ok(true) };
        let Some(request) = claim.requests.get(at.request) else {
            // If the next claim exceeds the limit, other alternatives of this claim do not help.
            return match self.serve(Cursor { claim: at.claim + 1, ..Cursor::default() }) {
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
            return self.serve(Cursor {
                claim: at.claim,
                request: at.request + 1,
                ..Cursor::default()
            });
        }
        let results = self.state.picks[at.claim].len();
        if results.saturating_add(wanted.wanted).saturating_sub(at.device) > MAX_RESULTS_PER_CLAIM {
            return Err(Stop::TooMany);
        }
        let target = Target { claim: at.claim, request, wanted };
        self.record_furthest(at, target);
        match wanted.all.as_ref().map(|all| all[at.device]) {
            Some(candidate) => self.serve_one_of_all(at, target, candidate),
            None => self.serve_any(at, target, claim.claim),
        }
    }

    /// Serves a list with the first alternative for which everything that follows succeeds.
    fn serve_first_available(
        &mut self,
        at: Cursor,
        request: &RequestPlan<'s>,
    ) -> Result<bool, Stop> {
        let mut is_all_too_many = true;
        for alternative in 0..request.alternatives.len() {
            match self.serve(Cursor { alternative, is_chosen: true, ..at }) {
                Err(Stop::TooMany) => {}
                Ok(false) => is_all_too_many = false,
                other => return other,
            }
        }
        if is_all_too_many { Err(Stop::TooMany) } else { Ok(false) }
    }

    /// Takes the next device of a request for all devices. No other device can replace it.
    fn serve_one_of_all(
        &mut self,
        at: Cursor,
        target: Target<'s>,
        candidate: Candidate,
    ) -> Result<bool, Stop> {
        let state = &self.state;
        let mismatch = state
            .check_free(target, candidate)
            .and_then(|()| state.check_counters(candidate))
            .and_then(|()| self.context.check_taints(target.wanted, candidate.device))
            .and_then(|()| state.check_constraints(target, candidate))
            .and_then(|()| state.check_capacity(target, candidate));
        match mismatch {
            Ok(()) => {}
            Err(Mismatch::Rule(rule)) => {
                let device = self.context.device_ref(candidate.device);
                let error = RequestError::ConstraintOfAll { device, rule: rule.clone() };
                let request = target.name();
                let claim = self.claims[at.claim].claim;
                return Err(Stop::AllocateError(AllocateError::request(claim, request, error)));
            }
            Err(_) => return Ok(false),
        }
        self.state.take(target, candidate);
        let result = self.serve(Cursor { device: at.device + 1, ..at });
        if !matches!(result, Ok(true)) {
            self.state.undo_last(at.claim);
        }
        result
    }

    /// Takes the first device for which everything that follows succeeds.
    fn serve_any(&mut self, at: Cursor, target: Target<'s>, claim: &Claim) -> Result<bool, Stop> {
        if !self.is_enough(target, claim, at.from, target.wanted.wanted - at.device)? {
            return Ok(false);
        }
        let context = self.context;
        for (index, &candidate) in context.candidates.iter().enumerate().skip(at.from) {
            if !self.fits(target, claim, candidate, true)? {
                continue;
            }
            self.step()?;
            self.state.take(target, candidate);
            match self.serve(Cursor { device: at.device + 1, from: index + 1, ..at }) {
                Ok(false) => self.state.undo_last(at.claim),
                Err(stop) => {
                    self.state.undo_last(at.claim);
                    return Err(stop);
                }
                Ok(true) => return Ok(true),
            }
        }
        Ok(false)
    }

    /// Whether enough devices that fit alone are left.
    fn is_enough(
        &self,
        target: Target<'s>,
        claim: &Claim,
        from: usize,
        wanted: usize,
    ) -> Result<bool, Stop> {
        // A rule that forgets values may later admit a device that it rejects now.
        let with_constraints = !self.context.has(Feature::UpstreamBugs);
        let mut count = 0;
        for &candidate in self.context.candidates.iter().skip(from) {
            if count == wanted {
                break;
            }
            count += usize::from(self.fits(target, claim, candidate, with_constraints)?);
        }
        Ok(count == wanted)
    }

    /// Whether a target can have a device. An error of the request ends the search.
    fn fits(
        &self,
        target: Target<'s>,
        claim: &Claim,
        candidate: Candidate,
        with_constraints: bool,
    ) -> Result<bool, Stop> {
        match self.state.check_device(target, candidate, with_constraints) {
            Ok(()) => Ok(true),
            Err(mismatch) => match fatal_error(&mismatch, claim, || target.name()) {
                Some(error) => Err(Stop::AllocateError(error)),
                None => Ok(false),
            },
        }
    }

    fn step(&mut self) -> Result<(), Stop> {
        self.steps += 1;
        let limit = self.context.allocator.steps;
        if self.steps > limit {
            return Err(Stop::AllocateError(AllocateError::Steps { limit }));
        }
        if self.steps == STEPS_BEFORE_BOUND && self.is_hopeless() {
            let error = self.context.invalid_pool().unwrap_or(AllocateError::NoFit);
            return Err(Stop::AllocateError(error));
        }
        Ok(())
    }

    /// Whether some request could not be served even alone.
    fn is_hopeless(&self) -> bool {
        let nothing = Self::new(self.context, self.claims);
        let can_serve =
            |claim: usize, request: &'s RequestPlan<'s>, wanted: &'s Alternative<'s>| {
                let target = Target { claim, request, wanted };
                if let Some(all) = &wanted.all {
                    return all.iter().all(|&one| nothing.state.check_free(target, one).is_ok());
                }
                let plan = self.claims[claim].claim;
                nothing.is_enough(target, plan, 0, wanted.wanted).unwrap_or(true)
            };
        self.claims.iter().enumerate().any(|(claim, plan)| {
            let is_served = |request: &'s RequestPlan<'s>| {
                request.alternatives.iter().any(|wanted| can_serve(claim, request, wanted))
            };
            !plan.requests.iter().all(is_served)
        })
    }

    /// Records the furthest point.
    fn record_furthest(&mut self, at: Cursor, target: Target<'s>) {
        let reached = (at.claim, at.request, at.device);
        if self.furthest.target.is_some() && reached <= self.furthest.reached {
            return;
        }
        let picks = self.state.picks.iter().flatten();
        let picks = picks.map(|pick| (pick.target, pick.candidate)).collect();
        self.furthest = Furthest { reached, picks, target: Some(target) };
    }
}
