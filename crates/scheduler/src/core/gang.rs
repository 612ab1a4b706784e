//! Decisions on gangs: all members that are needed get places together, or none does. Members that have
//! places already are pinned, so those that come late or again go where the gang is.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::plan::Placed;
use octavo_engine::preemption::PreemptionBudget;
use octavo_engine::solve::NodeSet;
use octavo_engine::{NodeId, Placement};

use super::Core;
use super::asking::{Asked, Left, Tried};
use super::decide::TRIES;
use super::grant::Granted;
use super::queue::Unit;
use super::statement::Blocked;
use crate::devices::AskedClaim;
use crate::groups::{GroupName, GroupSpec, MemberState};

/// Most tries of one decision beside those of any decision, however large the gang.
const MOST_TRIES: usize = 120;

/// What one decision has found out.
struct Search {
    spec: Arc<GroupSpec>,
    policy: Arc<PlacementPolicy>,
    preemption_budget: PreemptionBudget,
    /// Those who have their places, no order given yet.
    kept: Vec<Granted>,
    /// Nodes that did not serve whatever the others had.
    tried: Tried,
    /// Those, and nodes that do not serve beside those who are kept.
    tried_now: Tried,
    /// Nodes to be left out if it must be begun anew, each for these pods.
    bad: Vec<(Vec<Arc<str>>, NodeId)>,
    /// All nodes on which somebody found no place.
    nodes: NodeSet,
    /// The last of them, and why.
    last: Option<String>,
}

impl Search {
    fn new(
        spec: Arc<GroupSpec>,
        policy: Arc<PlacementPolicy>,
        preemption_budget: PreemptionBudget,
    ) -> Self {
        Self {
            spec,
            policy,
            preemption_budget,
            kept: Vec::new(),
            tried: Tried::new(),
            tried_now: Tried::new(),
            bad: Vec::new(),
            nodes: NodeSet::new(),
            last: None,
        }
    }

    /// Nobody is kept any more.
    fn begin_anew(&mut self) {
        for (uids, node) in self.bad.drain(..) {
            learn(&mut self.tried, &uids, node);
        }
        self.tried_now.clone_from(&self.tried);
    }
}

/// Why members wait beside those of whom all that fit have places.
fn beside_the_placed(left: Vec<Left>) -> Blocked {
    if left.is_empty() { Blocked::Surplus } else { Blocked::Incomplete(left) }
}

/// A node does not serve these pods.
fn learn(tried: &mut Tried, uids: &[Arc<str>], node: NodeId) {
    let mut last: Option<(Option<Arc<NodeSet>>, Arc<NodeSet>)> = None;
    for uid in uids {
        let before = tried.get(uid).cloned();
        // Mostly they have what is known in common.
        let after = match &last {
            Some((known, after))
                if known.as_ref().map(Arc::as_ptr) == before.as_ref().map(Arc::as_ptr) =>
            {
                Arc::clone(after)
            }
            _ => {
                let mut nodes = before.as_deref().cloned().unwrap_or_default();
                nodes.insert(node);
                Arc::new(nodes)
            }
        };
        tried.insert(Arc::clone(uid), Arc::clone(&after));
        last = Some((before, after));
    }
}

impl Core {
    /// Decides on a gang.
    pub(super) fn decide_group(&mut self, group: &GroupName) {
        let unit = Unit::Group(group.clone());
        if let Err(blocked) = self.try_group(group, &unit) {
            self.block(&unit, &blocked);
        }
    }

    fn try_group(&mut self, group: &GroupName, unit: &Unit) -> Result<(), Blocked> {
        let spec = self.spec_of(group).ok_or(Blocked::Gone)?;
        if !self.has_waiting_members(group) {
            self.queue.remove(unit);
            self.waiting.remove(unit);
            self.report_group(group);
            return Ok(());
        }
        let missing = self.missing(group, &spec);
        if !missing.is_empty() {
            return Err(Blocked::Gathering(missing));
        }
        let policy = self.policies.find(spec.policy.as_deref()).map_err(Blocked::NoPolicy)?;
        let policy = Arc::clone(policy);
        let asked = self.asked(group, &spec)?;
        let may_preempt = self
            .present(group)
            .iter()
            .filter_map(|uid| self.pods.get(uid))
            .all(|record| record.pod.spec.may_preempt);
        let preemption_budget =
            self.preemption_budget(asked.gang.profile.priority, may_preempt, &policy);
        let mut search = Search::new(spec, policy, preemption_budget);
        let outcome = self.search_group(group, unit, asked, &mut search);
        self.take_all_back(&mut search.kept);
        outcome
    }

    /// Asks for places until all members have theirs. Who could have his place keeps it while others are
    /// asked for anew: so it is known what is left for them. Where that leads nowhere, all is given back,
    /// and nodes that did not serve are left out.
    fn search_group(
        &mut self,
        group: &GroupName,
        unit: &Unit,
        mut asked: Asked,
        search: &mut Search,
    ) -> Result<(), Blocked> {
        let policy = Arc::clone(&search.policy);
        for _ in 0..TRIES + asked.ranks.len().min(MOST_TRIES) {
            if asked.gang.groups.is_empty() {
                return Err(Blocked::Incomplete(asked.left));
            }
            // Nobody is asked to leave for a place of which it is not known whether it will serve.
            let is_sure = search.kept.is_empty() && !asked.shares_claim;
            let preemption_budget =
                if is_sure { search.preemption_budget.clone() } else { PreemptionBudget::none() };
            let Asked { gang, pinned, forbidden, .. } = &asked;
            let (answer, explanation) =
                self.ask_engine(unit, gang, pinned, forbidden, &preemption_budget, &policy)?;
            let Ok(plan) = answer else {
                if !search.kept.is_empty() {
                    self.take_all_back(&mut search.kept);
                    search.begin_anew();
                    asked = self.asked_without(group, &search.spec, &search.tried)?;
                    continue;
                }
                let blocked = if let Some(last) = search.last.take() {
                    Blocked::NoDevices { nodes: search.nodes.len(), last }
                } else {
                    let left_out = self.left_out(unit).unproven(asked.unproven);
                    Blocked::Refused(Box::new(explanation.clone()), left_out)
                };
                self.decisions.note(unit, explanation);
                self.undo_allocations(unit);
                return Err(blocked);
            };
            let members: Vec<_> = plan
                .placements
                .iter()
                .filter_map(|placed| {
                    Some((Arc::clone(asked.ranks.get(placed.rank as usize)?), placed.clone()))
                })
                .collect();
            if !plan.evictions.is_empty() || !plan.moves.is_empty() {
                self.decisions.note(unit, explanation);
                return self.promise(unit, &members, &plan);
            }
            if members.is_empty() && search.kept.is_empty() {
                self.decisions.note(unit, explanation);
                return Err(beside_the_placed(asked.left));
            }
            if self.grant_some(&members, &asked, search) {
                self.decisions.note(unit, explanation);
                let granted = std::mem::take(&mut search.kept);
                self.gang_placed(unit, granted, &beside_the_placed(asked.left));
                return Ok(());
            }
            asked = self.asked_without(group, &search.spec, &search.tried_now)?;
        }
        let last = search.last.take().unwrap_or_default();
        Err(Blocked::NoDevices { nodes: search.nodes.len(), last })
    }

    /// Grants places to those who can have them. Whether all could.
    fn grant_some(
        &mut self,
        members: &[(Arc<str>, Placed)],
        asked: &Asked,
        search: &mut Search,
    ) -> bool {
        let mut failed = Vec::new();
        for (uid, placed) in members {
            match self.grant_one(uid, &placed.placement) {
                Ok(granted) => search.kept.push(granted),
                Err(words) => failed.push((uid, placed, words)),
            }
        }
        for (uid, placed, words) in &failed {
            let node = placed.placement.node;
            let name = self.picture.world.cluster.name(node);
            let who =
                self.pods.get(*uid).map_or_else(String::new, |one| one.pod.meta.name.to_string());
            search.last = Some(format!("{name}: {words} (pod {who})"));
            search.nodes.insert(node);
            let alike = asked.alike(placed.group);
            learn(&mut search.tried_now, alike, node);
            match self.claim_elsewhere(uid, node) {
                // The node is good, but for a claim that another of them got elsewhere.
                Some((users, elsewhere)) => search.bad.push((users, elsewhere)),
                None => search.bad.push((alike.to_vec(), node)),
            }
        }
        if search.kept.is_empty() && !failed.is_empty() {
            search.begin_anew();
        }
        failed.is_empty()
    }

    /// Where a claim of the pod is, if a pod of this decision has it on another node: the members that use
    /// it, and the node.
    fn claim_elsewhere(&mut self, uid: &Arc<str>, node: NodeId) -> Option<(Vec<Arc<str>>, NodeId)> {
        let ask = self.ask(uid).ok()?;
        let name = self.picture.world.cluster.name(node);
        if self.devices.is_allowed(&ask, name) {
            return None;
        }
        ask.claims.iter().find_map(|claim| {
            let AskedClaim::Allocated { claim, allocating: Some(other), .. } = claim else {
                return None;
            };
            let place = self.pods.get(other)?.place.as_ref()?;
            let elsewhere = self.picture.node(&place.node).filter(|other| *other != node)?;
            let users = self.by_claim.get(&claim.meta.name)?;
            Some((users.iter().cloned().collect(), elsewhere))
        })
    }

    fn take_all_back(&mut self, granted: &mut Vec<Granted>) {
        for one in granted.drain(..).rev() {
            self.take_back(&one);
        }
    }

    /// Grants places to several pods, all or none. An error: the first place that could not be had, and
    /// why.
    pub(super) fn grant_all<'a>(
        &mut self,
        places: impl Iterator<Item = (&'a Arc<str>, &'a Placement)>,
    ) -> Result<Vec<Granted>, (Placement, String)> {
        let mut granted: Vec<Granted> = Vec::new();
        for (uid, placement) in places {
            match self.grant_one(uid, placement) {
                Ok(one) => granted.push(one),
                Err(words) => {
                    for one in granted.iter().rev() {
                        self.take_back(one);
                    }
                    return Err((placement.clone(), words));
                }
            }
        }
        Ok(granted)
    }

    fn grant_one(&mut self, uid: &Arc<str>, placement: &Placement) -> Result<Granted, String> {
        let node: Arc<str> = self.picture.world.cluster.name(placement.node).into();
        // Anew: what those before it got may be a claim that it shares.
        let ask = self.ask(uid).map_err(|blocked| blocked.status_text().message)?;
        let granted = self.grant(uid, &ask, &node, Some(&placement.gpus));
        granted.map_err(|unplaced| unplaced.words().to_owned())
    }

    /// What is known of a gang, by its first member.
    pub(super) fn spec_of(&self, group: &GroupName) -> Option<Arc<GroupSpec>> {
        let mut uids = self.members.get(group)?.iter();
        uids.find_map(|uid| Some(Arc::clone(&self.pods.get(uid)?.member.as_ref()?.spec)))
    }

    fn missing(&self, group: &GroupName, spec: &GroupSpec) -> Vec<crate::groups::MissingMembers> {
        let mut have: BTreeMap<&str, u32> = BTreeMap::new();
        for uid in self.members.get(group).into_iter().flatten() {
            let Some(record) = self.pods.get(uid) else { continue };
            let counts =
                matches!(MemberState::of(&record.pod), MemberState::Present | MemberState::Done);
            // Who is gated is not there yet.
            let is_gated = record.pod.node.is_none() && !record.pod.spec.gates.is_empty();
            if let Some(member) = record.member.as_ref().filter(|_| counts && !is_gated) {
                *have.entry(&member.sub).or_default() += 1;
            }
        }
        spec.missing(|sub| have.get(sub).copied().unwrap_or(0))
    }
}
