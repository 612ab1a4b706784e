//! Decisions on gangs: all members that are needed get places together, or none does. Members that have
//! places already are pinned, so those that come late or again go where the gang is.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_engine::explain;
use octavo_engine::gang::Group;
use octavo_engine::solve::{NodeSet, Pinned};
use octavo_engine::workload::Profile;
use octavo_engine::{Gang, Placement, Shape};

use super::Core;
use super::decide::TRIES;
use super::grant::Granted;
use super::queue::Unit;
use super::statement::Blocked;
use crate::groups::{GroupName, GroupSpec, Standing};

/// A gang as the engine is asked for it, and whose each rank is.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) gang: Gang,
    pub(super) pinned: Vec<Pinned>,
    /// By rank: the pod.
    pub(super) ranks: Vec<Arc<str>>,
    forbidden: NodeSet,
}

/// A member's place in the order of ranks: subgroup, rank in it, name; and its UID.
type Seat = (usize, Option<u32>, Arc<str>, Arc<str>);

/// Members of a subgroup that ask for the same.
struct Alike {
    sub: usize,
    shape: Arc<Shape>,
    /// Whether all of them have places: the shape is what is known of who runs.
    is_placed: bool,
    uids: Vec<Arc<str>>,
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
        let mut asked = self.asked(group, &spec)?;
        let may_preempt = self
            .present(group)
            .iter()
            .filter_map(|uid| self.pods.get(uid))
            .all(|record| record.pod.spec.may_preempt);
        let allowance = self.allowance(asked.gang.profile.priority, may_preempt, &policy);
        let mut last = None;
        for _ in 0..TRIES {
            let snapshot = self
                .decisions
                .wants_records()
                .then(|| self.snapshot_with(std::slice::from_ref(&asked.gang)));
            let answer =
                self.ask_engine(&asked.gang, &asked.pinned, &asked.forbidden, &allowance, &policy)?;
            let explanation = explain::answer(&self.picture.world, &policy, &asked.gang, &answer);
            if let Some(snapshot) = snapshot
                && asked.pinned.is_empty()
                && asked.forbidden.is_empty()
            {
                self.decisions.record(unit, snapshot, &policy, &allowance, &explanation);
            }
            let Ok(plan) = answer else {
                let blocked = match last {
                    Some(last) => Blocked::NoDevices { nodes: asked.forbidden.len(), last },
                    None => Blocked::Refused(Box::new(explanation.clone()), self.left_out(unit)),
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
            if members.is_empty() {
                self.decisions.note(unit, explanation);
                return Err(Blocked::Surplus);
            }
            let places = members.iter().map(|(uid, placed)| (uid, &placed.placement));
            match self.grant_all(places) {
                Ok(granted) => {
                    self.decisions.note(unit, explanation);
                    self.placed(unit, granted);
                    return Ok(());
                }
                Err((placement, words)) => {
                    let node = self.picture.world.cluster.name(placement.node);
                    last = Some(format!("{node}: {words}"));
                    asked.forbidden.insert(placement.node);
                }
            }
        }
        let nodes = asked.forbidden.len();
        Err(Blocked::NoDevices { nodes, last: last.unwrap_or_default() })
    }

    /// Grants places to several pods, all or none. An error: the first place that could not be had, and
    /// why.
    pub(super) fn grant_all<'a>(
        &mut self,
        places: impl Iterator<Item = (&'a Arc<str>, &'a Placement)>,
    ) -> Result<Vec<Granted>, (Placement, String)> {
        let mut granted: Vec<Granted> = Vec::new();
        for (uid, placement) in places {
            let node: Arc<str> = self.picture.world.cluster.name(placement.node).into();
            // Anew: what those before it got may be a claim that it shares.
            let result = match self.ask(uid) {
                Ok(ask) => self
                    .grant(uid, &ask, &node, Some(&placement.gpus))
                    .map_err(|unplaced| unplaced.words().to_owned()),
                Err(blocked) => Err(blocked.statement().message),
            };
            match result {
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

    /// What is known of a gang, by its first member.
    pub(super) fn spec_of(&self, group: &GroupName) -> Option<Arc<GroupSpec>> {
        let mut uids = self.members.get(group)?.iter();
        uids.find_map(|uid| Some(Arc::clone(&self.pods.get(uid)?.member.as_ref()?.spec)))
    }

    fn missing(&self, group: &GroupName, spec: &GroupSpec) -> Vec<crate::groups::Missing> {
        let mut have: BTreeMap<&str, u32> = BTreeMap::new();
        for uid in self.members.get(group).into_iter().flatten() {
            let Some(record) = self.pods.get(uid) else { continue };
            let counts = matches!(Standing::of(&record.pod), Standing::Present | Standing::Done);
            // Who is gated is not there yet.
            let is_gated = record.pod.node.is_none() && !record.pod.spec.gates.is_empty();
            if let Some(member) = record.member.as_ref().filter(|_| counts && !is_gated) {
                *have.entry(&member.sub).or_default() += 1;
            }
        }
        spec.missing(|sub| have.get(sub).copied().unwrap_or(0))
    }

    /// The gang as the engine is asked for it.
    pub(super) fn asked(
        &mut self,
        group: &GroupName,
        spec: &Arc<GroupSpec>,
    ) -> Result<Asked, Blocked> {
        let wishes = self.wishes_of(spec).map_err(Blocked::Group)?;
        let mut forbidden = NodeSet::new();
        let mut members: Vec<Seat> = Vec::new();
        for uid in self.present(group) {
            let Some(record) = self.pods.get(&uid) else { continue };
            let Some(member) = &record.member else { continue };
            let Some(sub) = spec.subs.iter().position(|sub| sub.name == member.sub) else {
                continue;
            };
            let is_waiting = record.waits_for(&self.config.scheduler_name);
            if is_waiting || record.occupies() {
                let name = Arc::clone(&record.pod.meta.name.name);
                members.push((sub, member.rank, name, uid));
            }
        }
        members.sort();
        let mut alike: Vec<Alike> = Vec::new();
        for (sub, _, _, uid) in members {
            let is_placed = self.pods.get(&uid).is_some_and(|record| record.place.is_some());
            let shape = if is_placed {
                let Some(want) = self.picture.has(&uid) else { continue };
                Arc::clone(&want.shape)
            } else {
                let ask = self.ask(&uid)?;
                let (shape, mark) = self.shape_of_waiting(&uid, &ask).ok_or(Blocked::Gone)?;
                forbidden.extend(self.forbidden(&uid, mark, &ask, true));
                shape
            };
            // Of who runs it may not be known any more what it asked of nodes: it is like those who ask
            // for the same amounts.
            let is_like = |one: &Alike| {
                let amounts = |shape: &Shape| (shape.resources, shape.gpus.clone());
                let is_same = *one.shape == *shape
                    || ((one.is_placed || is_placed) && amounts(&one.shape) == amounts(&shape));
                one.sub == sub && is_same
            };
            match alike.iter_mut().find(|one| is_like(one)) {
                Some(one) => {
                    if one.is_placed && !is_placed {
                        (one.shape, one.is_placed) = (shape, false);
                    }
                    one.uids.push(uid);
                }
                None => alike.push(Alike { sub, shape, is_placed, uids: vec![uid] }),
            }
        }
        let mut least: Vec<u32> = spec.subs.iter().map(|sub| sub.min).collect();
        let mut asked = Asked {
            gang: Gang { profile: self.profile_of_group(group, spec), groups: Vec::new() },
            pinned: Vec::new(),
            ranks: Vec::new(),
            forbidden,
        };
        for (number, Alike { sub, shape, uids, .. }) in alike.into_iter().enumerate() {
            let count = u32::try_from(uids.len()).unwrap_or(u32::MAX);
            let min = least[sub].min(count);
            least[sub] -= min;
            let (topology, segment) = wishes.subs.get(sub).copied().unwrap_or_default();
            asked.gang.groups.push(Group {
                name: format!("{}{}", spec.subs[sub].name, suffix(number, sub)).into(),
                shape,
                count,
                min,
                topology,
                segment: segment.filter(|segment| segment.size > 0 && count % segment.size == 0),
            });
            for uid in uids {
                let rank = u32::try_from(asked.ranks.len()).unwrap_or(u32::MAX);
                if let Some(placement) = self.placement_of(&uid) {
                    asked.pinned.push(Pinned { rank, placement });
                }
                asked.ranks.push(uid);
            }
        }
        Ok(asked)
    }

    fn profile_of_group(&self, group: &GroupName, spec: &GroupSpec) -> Profile {
        let members = self.members.get(group).into_iter().flatten();
        let mut records = members.filter_map(|uid| self.pods.get(uid));
        let priority = spec.priority.or_else(|| {
            let all = self.members.get(group).into_iter().flatten();
            all.filter_map(|uid| self.pods.get(uid)).map(|record| record.pod.spec.priority).max()
        });
        let mut profile = records
            .next()
            .map_or_else(|| Profile::new(group.to_string()), |record| self.profile_of(record));
        profile.priority = priority.unwrap_or(0);
        profile
    }

    /// Where a pod is in the picture.
    pub(super) fn placement_of(&self, uid: &Arc<str>) -> Option<Placement> {
        let id = self.picture.member(uid)?;
        self.picture.world.workloads.member(id).map(|member| member.placement.clone())
    }
}

/// Names of groups are unique: the second shape of a subgroup has its number behind the name.
fn suffix(number: usize, sub: usize) -> String {
    if number == sub { String::new() } else { format!("-{number}") }
}
