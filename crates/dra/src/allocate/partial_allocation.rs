//! The devices that a search has taken so far, and how it undoes a choice.

use std::collections::{BTreeMap, BTreeSet};

use super::capacity;
use super::constraints::{ConstraintState, RequestName};
use super::mismatch::Mismatch;
use super::node_context::{Candidate, NodeContext};
use super::plan::{Alternative, ClaimPlan, RequestPlan};
use crate::Quantity;
use crate::features::Feature;
use crate::pools::DeviceId;

/// The devices that a search has taken so far.
pub(super) struct PartialAllocation<'s, 'a> {
    context: &'s NodeContext<'s, 'a>,
    /// Devices taken whole or for admin access, with the claims that took them.
    taken: BTreeMap<DeviceId, BTreeSet<usize>>,
    /// Shares of devices.
    parts: BTreeMap<DeviceId, Parts<'s>>,
    /// Draws from counters in billionths, by pool generation and counter.
    drawn: BTreeMap<usize, Vec<i128>>,
    /// The constraints of each claim.
    constraints: Vec<Vec<ConstraintState<'s>>>,
    /// The devices of each claim, in the order of choice.
    pub(super) picks: Vec<Vec<Pick<'s>>>,
}

/// The shares taken of one device.
#[derive(Default)]
struct Parts<'s> {
    count: usize,
    /// In billionths, by capacity.
    amounts: BTreeMap<&'s str, i128>,
}

/// A device, or a share of it, taken for a request.
pub(super) struct Pick<'s> {
    pub(super) target: Target<'s>,
    pub(super) candidate: Candidate,
    /// Amounts of capacities, for a share.
    pub(super) consumed: BTreeMap<&'s str, Quantity>,
    pub(super) is_part: bool,
    /// Whether this pick drew counters.
    has_drawn: bool,
}

/// The request or alternative for which the search chooses a device.
#[derive(Clone, Copy)]
pub(super) struct Target<'s> {
    /// Index of the claim.
    pub(super) claim: usize,
    pub(super) request: &'s RequestPlan<'s>,
    pub(super) wanted: &'s Alternative<'s>,
}

impl<'s> Target<'s> {
    /// `<request>` or `<request>/<alternative>`.
    pub(super) fn name(self) -> String {
        self.request.full_name(self.wanted)
    }

    fn of(self) -> RequestName<'s> {
        RequestName { request: self.request.name, alternative: self.wanted.name }
    }
}

impl<'s, 'a: 's> PartialAllocation<'s, 'a> {
    /// An empty allocation.
    pub(super) fn new(context: &'s NodeContext<'s, 'a>, claims: &[ClaimPlan<'s>]) -> Self {
        let is_per_request = context.has(Feature::UpstreamBugs);
        let constraints = |plan: &ClaimPlan<'s>| {
            plan.claim
                .constraints
                .iter()
                .map(|one| ConstraintState::new(one, is_per_request))
                .collect()
        };
        Self {
            context,
            taken: BTreeMap::new(),
            parts: BTreeMap::new(),
            drawn: BTreeMap::new(),
            constraints: claims.iter().map(constraints).collect(),
            picks: claims.iter().map(|_| Vec::new()).collect(),
        }
    }

    /// The first reason why a target cannot have a device, in the order of Kubernetes' checks.
    pub(super) fn check_device(
        &self,
        target: Target<'s>,
        at: Candidate,
        with_constraints: bool,
    ) -> Result<(), Mismatch<'s>> {
        self.check_free(target, at)?;
        self.context.check_selectors(target.wanted, at.device)?;
        self.check_capacity(target, at)?;
        self.check_counters(at)?;
        self.context.check_taints(target.wanted, at.device)?;
        if with_constraints { self.check_constraints(target, at) } else { Ok(()) }
    }

    /// Checks that no allocated claim and no other pick holds the device.
    pub(super) fn check_free(&self, target: Target<'s>, at: Candidate) -> Result<(), Mismatch<'s>> {
        let takers = self.taken.get(&at.id).filter(|takers| !takers.is_empty());
        if target.wanted.ask.admin_access {
            return match takers {
                Some(takers) if takers.contains(&target.claim) => Err(Mismatch::Together),
                _ => Ok(()),
            };
        }
        let usage = self.context.allocator.allocated.of(at.id);
        if usage.is_some_and(|usage| usage.is_dedicated) {
            return Err(Mismatch::InUse);
        }
        if takers.is_some() { Err(Mismatch::Together) } else { Ok(()) }
    }

    /// Checks that enough of the capacities is left.
    pub(super) fn check_capacity(
        &self,
        target: Target<'s>,
        at: Candidate,
    ) -> Result<(), Mismatch<'s>> {
        let parts = self.parts.get(&at.id);
        let amount = |name: &str| parts.and_then(|parts| parts.amounts.get(name)).copied();
        self.context.check_capacity(target.wanted, at.device, |name| amount(name).unwrap_or(0))
    }

    /// Checks that the counters allow the device's draw, unless the device has drawn already.
    pub(super) fn check_counters(&self, at: Candidate) -> Result<(), Mismatch<'s>> {
        let device = self.context.published(at.device).device;
        if !device.consumes.is_empty() && !self.context.has(Feature::PartitionableDevices) {
            return Err(Mismatch::FeatureOff(Feature::PartitionableDevices));
        }
        if !self.must_draw(at) {
            return Ok(());
        }
        let remaining = self.context.allocator.remaining(at.generation);
        let drawn = self.drawn.get(&at.generation).map(Vec::as_slice);
        remaining.check(at.device, drawn).map_err(Mismatch::Counters)
    }

    /// Checks the constraints of the claim.
    pub(super) fn check_constraints(
        &self,
        target: Target<'s>,
        at: Candidate,
    ) -> Result<(), Mismatch<'s>> {
        let device = self.context.published(at.device).device;
        let driver = self.context.driver(at.device);
        let breaks = |rule: &&ConstraintState<'s>| !rule.admits(target.of(), driver, device);
        match self.constraints[target.claim].iter().find(breaks) {
            Some(rule) => Err(Mismatch::Rule(rule.rule())),
            None => Ok(()),
        }
    }

    /// Takes a device that passed all checks.
    pub(super) fn take(&mut self, target: Target<'s>, at: Candidate) {
        let device = self.context.published(at.device).device;
        let driver = self.context.driver(at.device);
        let has_drawn = self.must_draw(at);
        if has_drawn {
            self.draw(at, 1);
        }
        for rule in &mut self.constraints[target.claim] {
            rule.add(target.of(), driver, device);
        }
        let is_part = self.context.is_shareable(at.device);
        let mut consumed = BTreeMap::new();
        if is_part {
            consumed = capacity::amounts(device, &target.wanted.ask.capacity);
            let parts = self.parts.entry(at.id).or_default();
            parts.count += 1;
            for (name, amount) in &consumed {
                let sum = parts.amounts.entry(name).or_default();
                *sum = sum.saturating_add(amount.nanos());
            }
        } else {
            self.taken.entry(at.id).or_default().insert(target.claim);
        }
        let pick = Pick { target, candidate: at, consumed, is_part, has_drawn };
        self.picks[target.claim].push(pick);
    }

    /// Undoes the claim's last pick.
    pub(super) fn undo_last(&mut self, claim: usize) {
        let Some(pick) = self.picks[claim].pop() else { return };
        let at = pick.candidate;
        if pick.is_part {
            if let Some(parts) = self.parts.get_mut(&at.id) {
                parts.count -= 1;
                for (name, amount) in &pick.consumed {
                    let sum = parts.amounts.entry(name).or_default();
                    *sum = sum.saturating_sub(amount.nanos());
                }
                if parts.count == 0 {
                    self.parts.remove(&at.id);
                }
            }
        } else if let Some(takers) = self.taken.get_mut(&at.id) {
            takers.remove(&claim);
        }
        for rule in &mut self.constraints[claim] {
            rule.remove(pick.target.of());
        }
        if pick.has_drawn {
            self.draw(at, -1);
        }
    }

    /// The pick that holds a device whole.
    pub(super) fn pick_of(&self, device: DeviceId) -> Option<&Pick<'s>> {
        self.picks.iter().flatten().find(|pick| pick.candidate.id == device)
    }

    /// Whether taking the device draws counters: only the first of several shares does.
    fn must_draw(&self, at: Candidate) -> bool {
        let device = self.context.published(at.device).device;
        let has_drawn_counters = || {
            self.context.allocator.allocated.of(at.id).is_some_and(|usage| usage.has_drawn_counters)
        };
        let has_drawn = self.context.is_shareable(at.device)
            && (self.parts.contains_key(&at.id) || has_drawn_counters());
        !device.consumes.is_empty() && !has_drawn
    }

    fn draw(&mut self, at: Candidate, sign: i128) {
        let remaining = self.context.allocator.remaining(at.generation);
        let drawn =
            self.drawn.entry(at.generation).or_insert_with(|| vec![0; remaining.left.len()]);
        for &(counter, amount) in remaining.draws(at.device) {
            drawn[counter] = drawn[counter].saturating_add(amount.saturating_mul(sign));
        }
    }
}
