//! Decisions on pods by themselves.

use std::sync::Arc;

use octavo_engine::gang::Group;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::workload::{Profile, TopologyConstraint};
use octavo_engine::{Gang, Plan, Shape};
use rustc_hash::FxHashMap;

use super::decide::{TRIES, is_gpu};
use super::grant::Unplaced;
use super::marks::Mark;
use super::queue::Unit;
use super::statement::Blocked;
use super::{Core, pod};
use crate::devices::Ask;
use crate::groups::PlacementHints;
use crate::predicates::PodRequests;

/// What tells refusals apart: what is asked for, by whom, whether others may be evicted for it, the policy,
/// and what is taken of a node beside what the engine counts, which has reasons of its own.
type Wish = (Arc<Shape>, i32, bool, TopologyConstraint, String, Option<Arc<PodRequests>>);

/// What was refused since the last change, so that equal pods are not searched for again.
#[derive(Debug, Default)]
pub(super) struct Refused {
    changes: u64,
    by_wish: FxHashMap<Wish, Blocked>,
}

impl Refused {
    pub(super) fn clear(&mut self) {
        self.by_wish.clear();
    }
}

impl Core {
    /// Decides on a pod by itself.
    pub(super) fn decide_pod(&mut self, uid: &Arc<str>) {
        let unit = Unit::Pod(Arc::clone(uid));
        if let Err(blocked) = self.try_pod(uid, &unit) {
            self.block(&unit, &blocked);
        }
    }

    fn try_pod(&mut self, uid: &Arc<str>, unit: &Unit) -> Result<(), Blocked> {
        if let Some(record) = self.pods.get(uid)
            && let Some((_, rules, _)) = &record.mark
            && let Some(unfit) = rules.pod_level_reason()
        {
            return Err(Blocked::Volumes(unfit.clone()));
        }
        let ask = self.ask(uid)?;
        let (shape, mark) = self.shape_of_waiting(uid, &ask).ok_or(Blocked::Gone)?;
        let record = self.pods.get(uid).ok_or(Blocked::Gone)?;
        let said = PlacementHints::of(&record.pod.meta).map_err(Blocked::Group)?;
        let policy = self.policies.find(said.policy.as_deref()).map_err(Blocked::NoPolicy)?;
        let policy = Arc::clone(policy);
        let profile = match &record.profile {
            Some(profile) => Arc::clone(profile),
            None => Arc::new(self.profile_of(record)),
        };
        if let Some(place) = self.kept_place(uid, &shape) {
            let Some(place) = self.grant(uid, &ask, &place.node, Some(&place.gpus)).ok() else {
                return self.search_pod(uid, unit, &ask, &shape, mark, &profile, &policy);
            };
            self.placed(unit, vec![place]);
            return Ok(());
        }
        self.search_pod(uid, unit, &ask, &shape, mark, &profile, &policy)
    }

    #[expect(clippy::too_many_arguments, reason = "what was found out about one pod, used once")]
    fn search_pod(
        &mut self,
        uid: &Arc<str>,
        unit: &Unit,
        ask: &Ask,
        shape: &Arc<Shape>,
        mark: Mark,
        profile: &Arc<Profile>,
        policy: &Arc<PlacementPolicy>,
    ) -> Result<(), Blocked> {
        let may_preempt = self.pods.get(uid).is_some_and(|record| record.pod.spec.may_preempt);
        let preemption_budget = self.preemption_budget(profile.priority, may_preempt, policy);
        let gang = gang_of_one(profile, shape);
        // Room is looked at in each node only once the first choice has none.
        let mut forbidden = self.forbidden(uid, mark, ask, false);
        let is_plain = forbidden.is_empty() && mark != Mark::Scan;
        let may_evict = preemption_budget.evictions.is_some();
        let policy_name = policy.name().to_owned();
        let (priority, topology) = (profile.priority, profile.topology);
        let more = self.pods.get(uid).map(|record| Arc::clone(&record.footprint));
        let more = more.filter(|footprint| pod::has_more(footprint, |name| is_gpu(name, ask)));
        let is_all_said = more.is_some() && ask.claims.is_empty() && ask.extended.is_empty();
        let wish = (Arc::clone(shape), priority, may_evict, topology, policy_name, more);
        if is_plain {
            if self.refused.changes != self.changes {
                self.refused.by_wish.clear();
                self.refused.changes = self.changes;
            }
            if let Some(known) = self.refused.by_wish.get(&wish) {
                let known = known.clone();
                if let Blocked::Refused(explanation, _) = &known {
                    self.decisions.note(unit, (**explanation).clone());
                }
                return Err(known);
            }
        }
        let mut last = None;
        for _ in 0..TRIES {
            let (answer, explanation) =
                self.ask_engine(unit, &gang, &[], &forbidden, &preemption_budget, policy)?;
            let Ok(plan) = answer else {
                let blocked = match last {
                    Some(last) => Blocked::NoDevices { nodes: forbidden.len(), last },
                    None => Blocked::Refused(Box::new(explanation.clone()), self.left_out(unit)),
                };
                self.decisions.note(unit, explanation);
                // What was found out on a node may be of this pod's claims alone.
                if is_plain && (is_all_said || matches!(blocked, Blocked::Refused(..))) {
                    self.refused.by_wish.insert(wish, blocked.clone());
                }
                self.undo_allocations(unit);
                return Err(blocked);
            };
            let is_disturbing = !plan.evictions.is_empty() || !plan.moves.is_empty();
            let Some(placed) = plan.placements.first() else { return Err(Blocked::Gone) };
            let node: Arc<str> = self.picture.world.cluster.name(placed.placement.node).into();
            let found = if is_disturbing {
                // Nobody leaves for a place that would not do without him.
                self.check_room_after(uid, ask, &node, &plan).map(|()| None)
            } else {
                self.grant(uid, ask, &node, Some(&placed.placement.gpus)).map(Some)
            };
            match found {
                Ok(Some(granted)) => {
                    self.decisions.note(unit, explanation);
                    self.placed(unit, vec![granted]);
                    return Ok(());
                }
                Ok(None) => {
                    self.decisions.note(unit, explanation);
                    return self.promise(unit, &[(Arc::clone(uid), placed.clone())], &plan);
                }
                Err(unplaced) => {
                    if last.is_none() {
                        forbidden = self.forbidden(uid, mark, ask, true);
                    }
                    forbidden.insert(placed.placement.node);
                    last = Some(format!("{node}: {}", unplaced.words()));
                }
            }
        }
        // Where the engine's picture is so far off, each node is asked.
        let names: Vec<_> = self.nodes.keys().cloned().collect();
        for node in names {
            let is_forbidden = self.picture.node(&node).is_none_or(|id| forbidden.contains(&id));
            if !is_forbidden
                && self.may_be_on(uid, &node)
                && self.may_give_devices(ask, &node)
                && let Ok(granted) = self.grant(uid, ask, &node, None)
            {
                self.placed(unit, vec![granted]);
                return Ok(());
            }
        }
        Err(Blocked::NoDevices { nodes: forbidden.len(), last: last.unwrap_or_default() })
    }

    /// Whether a node will have what a pod takes beside what the engine counts, when those have left whom
    /// a plan asks to.
    fn check_room_after(
        &self,
        uid: &Arc<str>,
        ask: &Ask,
        node: &Arc<str>,
        plan: &Plan,
    ) -> Result<(), Unplaced> {
        let (Some(record), Some(there)) = (self.pods.get(uid), self.nodes.get(node)) else {
            return Err(Unplaced::NoNode);
        };
        if !pod::has_more(&record.footprint, |name| is_gpu(name, ask)) {
            return Ok(());
        }
        let mut usage = there.usage.clone();
        let leave = plan.evictions.iter().chain(plan.moves.iter().map(|step| &step.member));
        let leave = leave.filter_map(|id| self.pods.get(self.picture.holder(*id)?));
        for gone in leave.filter(|one| one.counted.as_ref() == Some(node)) {
            usage.remove(&gone.footprint);
        }
        let taken = self.taken_beside(record, ask, there, &usage);
        if taken.is_empty() {
            return Ok(());
        }
        let words: Vec<_> = taken.iter().map(ToString::to_string).collect();
        Err(Unplaced::Room(words.join(", ")))
    }

    /// Whether a node's labels and taints suit a waiting pod.
    fn may_be_on(&self, uid: &Arc<str>, node: &str) -> bool {
        let (Some(record), Some(node)) = (self.pods.get(uid), self.nodes.get(node)) else {
            return false;
        };
        let gpus = self.devices.gpus(&node.node.meta.name.name);
        record
            .mark
            .as_ref()
            .is_some_and(|(_, rules, used)| used.suits(gpus) && rules.check(&node.node).is_ok())
    }
}

/// A pod as a gang of one.
pub(super) fn gang_of_one(profile: &Profile, shape: &Arc<Shape>) -> Gang {
    Gang { profile: profile.clone(), groups: vec![Group::new("pod", Arc::clone(shape), 1)] }
}
