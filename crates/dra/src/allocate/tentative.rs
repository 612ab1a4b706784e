//! What a search has taken so far, and how it is given back.

use std::collections::{BTreeMap, BTreeSet};

use super::capacity;
use super::constraints::{Covered, For};
use super::obstacle::Obstacle;
use super::plan::{Alternative, ClaimPlan, RequestPlan};
use super::scene::{Candidate, Scene};
use crate::Quantity;
use crate::features::Feature;
use crate::pools::DeviceId;

/// What is taken so far.
pub(super) struct Tentative<'s, 'a> {
    scene: &'s Scene<'s, 'a>,
    /// Devices taken whole or for administration, with the claims that took them.
    taken: BTreeMap<DeviceId, BTreeSet<usize>>,
    /// Parts of devices.
    parts: BTreeMap<DeviceId, Parts<'s>>,
    /// What is drawn from counters, by edition and counter, in billionths.
    drawn: BTreeMap<usize, Vec<i128>>,
    /// The constraints of each claim.
    rules: Vec<Vec<Covered<'s>>>,
    /// The devices of each claim, in the order in which they were taken.
    pub(super) picks: Vec<Vec<Pick<'s>>>,
}

/// What is taken of a device that is shared.
#[derive(Default)]
struct Parts<'s> {
    count: usize,
    /// In billionths, by capacity.
    amounts: BTreeMap<&'s str, i128>,
}

/// A device, or a part of it, taken for a request.
pub(super) struct Pick<'s> {
    pub(super) place: Place<'s>,
    pub(super) candidate: Candidate,
    /// Amounts of capacities, for a part.
    pub(super) consumed: BTreeMap<&'s str, Quantity>,
    pub(super) is_part: bool,
    /// Whether counters were drawn for it.
    has_drawn: bool,
}

/// The place for which a device is wanted.
#[derive(Clone, Copy)]
pub(super) struct Place<'s> {
    /// The claim, as an index.
    pub(super) claim: usize,
    pub(super) request: &'s RequestPlan<'s>,
    pub(super) wanted: &'s Alternative<'s>,
}

impl<'s> Place<'s> {
    /// `<request>` or `<request>/<alternative>`.
    pub(super) fn name(self) -> String {
        self.request.full_name(self.wanted)
    }

    fn of(self) -> For<'s> {
        For { request: self.request.name, alternative: self.wanted.name }
    }
}

impl<'s, 'a: 's> Tentative<'s, 'a> {
    /// Nothing taken yet.
    pub(super) fn new(scene: &'s Scene<'s, 'a>, claims: &[ClaimPlan<'s>]) -> Self {
        let is_forgetful = scene.has(Feature::KubernetesFaults);
        let rules = |plan: &ClaimPlan<'s>| {
            plan.claim.constraints.iter().map(|one| Covered::new(one, is_forgetful)).collect()
        };
        Self {
            scene,
            taken: BTreeMap::new(),
            parts: BTreeMap::new(),
            drawn: BTreeMap::new(),
            rules: claims.iter().map(rules).collect(),
            picks: claims.iter().map(|_| Vec::new()).collect(),
        }
    }

    /// The first thing that stands between a place and a device, in the order of Kubernetes.
    pub(super) fn judge(
        &self,
        place: Place<'s>,
        at: Candidate,
        has_rules: bool,
    ) -> Result<(), Obstacle<'s>> {
        self.is_free(place, at)?;
        self.scene.select(place.wanted, at.device)?;
        self.has_capacity(place, at)?;
        self.has_counters(at)?;
        self.scene.tolerate(place.wanted, at.device)?;
        if has_rules { self.is_in_line(place, at) } else { Ok(()) }
    }

    /// Whether nobody stands in the way who has the device already.
    pub(super) fn is_free(&self, place: Place<'s>, at: Candidate) -> Result<(), Obstacle<'s>> {
        let takers = self.taken.get(&at.id).filter(|takers| !takers.is_empty());
        if place.wanted.ask.admin_access {
            return match takers {
                Some(takers) if takers.contains(&place.claim) => Err(Obstacle::Together),
                _ => Ok(()),
            };
        }
        let holding = self.scene.allocator.holdings.of(at.id);
        if holding.is_some_and(|holding| holding.is_dedicated) {
            return Err(Obstacle::InUse);
        }
        if takers.is_some() { Err(Obstacle::Together) } else { Ok(()) }
    }

    /// Whether enough of the capacities is left.
    pub(super) fn has_capacity(&self, place: Place<'s>, at: Candidate) -> Result<(), Obstacle<'s>> {
        let parts = self.parts.get(&at.id);
        let amount = |name: &str| parts.and_then(|parts| parts.amounts.get(name)).copied();
        self.scene.measure(place.wanted, at.device, |name| amount(name).unwrap_or(0))
    }

    /// Whether the counters have what the device draws, if it has not drawn it before.
    pub(super) fn has_counters(&self, at: Candidate) -> Result<(), Obstacle<'s>> {
        let device = self.scene.published(at.device).device;
        if !device.consumes.is_empty() && !self.scene.has(Feature::PartitionableDevices) {
            return Err(Obstacle::FeatureOff(Feature::PartitionableDevices));
        }
        if !self.must_draw(at) {
            return Ok(());
        }
        let supply = self.scene.allocator.supply(at.edition);
        let drawn = self.drawn.get(&at.edition).map(Vec::as_slice);
        supply.check(at.device, drawn).map_err(Obstacle::Counters)
    }

    /// Whether the claim's constraints would hold.
    pub(super) fn is_in_line(&self, place: Place<'s>, at: Candidate) -> Result<(), Obstacle<'s>> {
        let device = self.scene.published(at.device).device;
        let driver = self.scene.driver(at.device);
        let breaks = |rule: &&Covered<'s>| !rule.admits(place.of(), driver, device);
        match self.rules[place.claim].iter().find(breaks) {
            Some(rule) => Err(Obstacle::Rule(rule.rule())),
            None => Ok(()),
        }
    }

    /// Takes a device that nothing stands in the way of.
    pub(super) fn take(&mut self, place: Place<'s>, at: Candidate) {
        let device = self.scene.published(at.device).device;
        let driver = self.scene.driver(at.device);
        let has_drawn = self.must_draw(at);
        if has_drawn {
            self.draw(at, 1);
        }
        for rule in &mut self.rules[place.claim] {
            rule.add(place.of(), driver, device);
        }
        let is_part = self.scene.is_shareable(at.device);
        let mut consumed = BTreeMap::new();
        if is_part {
            consumed = capacity::amounts(device, &place.wanted.ask.capacity);
            let parts = self.parts.entry(at.id).or_default();
            parts.count += 1;
            for (name, amount) in &consumed {
                let sum = parts.amounts.entry(name).or_default();
                *sum = sum.saturating_add(amount.nanos());
            }
        } else {
            self.taken.entry(at.id).or_default().insert(place.claim);
        }
        let pick = Pick { place, candidate: at, consumed, is_part, has_drawn };
        self.picks[place.claim].push(pick);
    }

    /// Gives back the device that a claim took last.
    pub(super) fn give_back(&mut self, claim: usize) {
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
        for rule in &mut self.rules[claim] {
            rule.remove(pick.place.of());
        }
        if pick.has_drawn {
            self.draw(at, -1);
        }
    }

    /// The pick that has a device whole.
    pub(super) fn taker(&self, device: DeviceId) -> Option<&Pick<'s>> {
        self.picks.iter().flatten().find(|pick| pick.candidate.id == device)
    }

    /// Whether the device draws from counters and has not drawn yet: parts draw once for all.
    fn must_draw(&self, at: Candidate) -> bool {
        let device = self.scene.published(at.device).device;
        let is_counted =
            || self.scene.allocator.holdings.of(at.id).is_some_and(|holding| holding.is_counted);
        let has_drawn =
            self.scene.is_shareable(at.device) && (self.parts.contains_key(&at.id) || is_counted());
        !device.consumes.is_empty() && !has_drawn
    }

    fn draw(&mut self, at: Candidate, sign: i128) {
        let supply = self.scene.allocator.supply(at.edition);
        let drawn = self.drawn.entry(at.edition).or_insert_with(|| vec![0; supply.left.len()]);
        for &(counter, amount) in supply.draws(at.device) {
            drawn[counter] = drawn[counter].saturating_add(amount.saturating_mul(sign));
        }
    }
}
