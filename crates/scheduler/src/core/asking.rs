//! A gang as the engine is asked for it: members that ask for the same, on nodes of the same rules, are a
//! group. What the engine's shapes do not know (ports, storage, claims that are allocated, nodes by name)
//! becomes rules of the groups.

mod ports;
mod segments;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_engine::gang::{Group, NodeLimit};
use octavo_engine::gpu::ModelSet;
use octavo_engine::shape::GpuDemand;
use octavo_engine::solve::{NodeSet, Pinned};
use octavo_engine::workload::Profile;
use octavo_engine::{Gang, Placement, Shape};

use super::Core;
use super::marks::Mark;
use super::statement::Blocked;
use crate::devices::{Ask, RequestKey};
use crate::groups::{GroupName, GroupSpec};
use crate::predicates::PodRequests;
use ports::Ports;
pub(super) use segments::Left;

/// A gang as the engine is asked for it, and whose each rank is.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) gang: Gang,
    pub(super) pinned: Vec<Pinned>,
    /// By rank: the pod.
    pub(super) ranks: Vec<Arc<str>>,
    /// Nodes on which none of its groups may be.
    pub(super) forbidden: NodeSet,
    /// Members whose segment is not complete: nothing is asked for them.
    pub(super) left: Vec<Left>,
    /// Why there may be places where none are found: what is asked for is more than what is needed.
    pub(super) unproven: BTreeSet<String>,
    /// Whether members share a claim that is to be allocated: where it is decides where all of them are,
    /// and the engine does not know that.
    pub(super) shares_claim: bool,
}

/// Nodes that were tried for pods and did not serve, by pod.
pub(super) type Tried = BTreeMap<Arc<str>, Arc<NodeSet>>;

/// A member's place in the order of ranks: subgroup, rank in it, name; and its UID.
type Seat = (usize, Option<u32>, Arc<str>, Arc<str>);

/// Members of a subgroup that ask for the same.
struct Alike {
    sub: usize,
    shape: Arc<Shape>,
    /// Whether all of them have places: the shape is what is known of who runs.
    is_placed: bool,
    rules: Rules,
    /// Each with its number among the members of the subgroup.
    uids: Vec<(u32, Arc<str>)>,
}

/// What a member asks of nodes that its shape does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rules {
    forbidden: Arc<NodeSet>,
    limits: Vec<NodeLimit>,
}

/// What a pod takes of a node: its footprint, extended resources, and what it wants from the allocator
/// where that has the last word.
type Amounts = (Arc<PodRequests>, BTreeMap<String, u64>, Option<RequestKey>);

/// Nodes that cannot be had, as the last member was told: members are mostly alike.
#[derive(Default)]
struct Known {
    /// By what such a member takes.
    by_room: Option<(Amounts, Arc<NodeSet>)>,
    /// Two sets in one.
    joined: Option<[Arc<NodeSet>; 3]>,
}

impl Core {
    /// The gang as the engine is asked for it.
    pub(super) fn asked(
        &mut self,
        group: &GroupName,
        spec: &Arc<GroupSpec>,
    ) -> Result<Asked, Blocked> {
        self.asked_without(group, spec, &Tried::new())
    }

    /// The same, without nodes that did not serve.
    pub(super) fn asked_without(
        &mut self,
        group: &GroupName,
        spec: &Arc<GroupSpec>,
        tried: &Tried,
    ) -> Result<Asked, Blocked> {
        let wishes = self.wishes_of(spec).map_err(Blocked::Group)?;
        let mut members = self.seats(group, spec);
        let sizes: Vec<_> =
            wishes.subs.iter().map(|(_, segment)| segment.map(|segment| segment.size)).collect();
        let (left, is_left) = segments::left(spec, &sizes, members.iter().map(|seat| seat.0));
        let mut number = 0;
        members.retain(|_| {
            number += 1;
            !is_left[number - 1]
        });
        let ports = self.ports_of(&members);
        let mut alike: Vec<Alike> = Vec::new();
        let mut claims: BTreeMap<Arc<str>, u32> = BTreeMap::new();
        let mut known = Known::default();
        let mut unproven = BTreeSet::new();
        let mut seats = vec![0_u32; spec.subs.len()];
        for (sub, _, _, uid) in members {
            let seat = seats[sub];
            seats[sub] += 1;
            let segment = wishes.subs.get(sub).and_then(|(_, segment)| *segment);
            // Members of a segment stay one group: what one of them may not have none has.
            let is_bound = segment.is_some();
            let is_placed = self.pods.get(&uid).is_some_and(|record| record.place.is_some());
            let (shape, rules) = if is_placed {
                let Some(want) = self.picture.has(&uid) else { continue };
                let limits = self.pods.get(&uid).map(|record| ports.limits(&record.footprint));
                let rules = Rules { limits: limits.unwrap_or_default(), ..Rules::default() };
                (Arc::clone(&want.shape), rules)
            } else {
                let ask = self.ask(&uid)?;
                let (shape, mark) = self.shape_of_waiting(&uid, &ask).ok_or(Blocked::Gone)?;
                let is_new = count_claims(&ask, &mut claims);
                let shape = if is_new || is_bound { shape } else { without_gpus(&shape) };
                let forbidden = self.forbidden_to(&uid, mark, &ask, tried.get(&uid), &mut known);
                let limits = self.pods.get(&uid).map(|record| ports.limits(&record.footprint));
                (shape, Rules { forbidden, limits: limits.unwrap_or_default() })
            };
            // Of who runs it may not be known any more what it asked of nodes: it is like those who ask
            // for the same amounts.
            let is_like = |one: &Alike| {
                let amounts = |shape: &Shape| (shape.resources, shape.gpus.clone());
                let is_loose = one.is_placed || is_placed;
                one.sub == sub
                    && (*one.shape == *shape
                        || (is_loose && amounts(&one.shape) == amounts(&shape)))
                    && (is_bound
                        || one.rules == rules
                        || (is_loose && one.rules.limits == rules.limits))
            };
            match alike.iter_mut().find(|one| is_like(one)) {
                Some(one) => {
                    if one.is_placed && !is_placed {
                        (one.shape, one.is_placed, one.rules) = (shape, false, rules);
                    } else if !is_placed && one.rules != rules {
                        one.rules.join(rules);
                        unproven.insert(of_segments(&spec.subs[sub].name));
                    }
                    one.uids.push((seat, uid));
                }
                None => alike.push(Alike { sub, shape, is_placed, rules, uids: vec![(seat, uid)] }),
            }
        }
        for one in &alike {
            if let Some(size) = sizes.get(one.sub).copied().flatten() {
                let numbers = one.uids.iter().map(|(seat, _)| *seat);
                segments::check(spec, one.sub, size, numbers)?;
            }
        }
        let mut asked = self.asked_for(group, spec, &wishes, alike);
        asked.left = left;
        asked.unproven.append(&mut unproven);
        asked.shares_claim = claims.values().any(|members| *members > 1);
        Ok(asked)
    }

    fn asked_for(
        &self,
        group: &GroupName,
        spec: &GroupSpec,
        wishes: &crate::groups::TopologyRequests,
        alike: Vec<Alike>,
    ) -> Asked {
        let mut least: Vec<u32> = spec.subs.iter().map(|sub| sub.min).collect();
        let mut asked = Asked {
            gang: Gang { profile: self.profile_of_group(group, spec), groups: Vec::new() },
            pinned: Vec::new(),
            ranks: Vec::new(),
            forbidden: for_all(&alike),
            left: Vec::new(),
            unproven: BTreeSet::new(),
            shares_claim: false,
        };
        let mut parts = vec![0_u32; spec.subs.len()];
        for one in &alike {
            parts[one.sub] += 1;
        }
        for (number, Alike { sub, shape, uids, rules, .. }) in alike.into_iter().enumerate() {
            let count = u32::try_from(uids.len()).unwrap_or(u32::MAX);
            let min = least[sub].min(count);
            least[sub] -= min;
            if parts[sub] > 1 && min < count {
                asked.unproven.insert(of_minimum(&spec.subs[sub].name));
            }
            let (topology, segment) = wishes.subs.get(sub).copied().unwrap_or_default();
            asked.gang.groups.push(Group {
                name: format!("{}{}", spec.subs[sub].name, suffix(number, sub)).into(),
                shape,
                count,
                min,
                topology,
                // Who asks for something else must be where the others of the subgroup are.
                colocation_id: u32::try_from(sub)
                    .ok()
                    .filter(|_| parts[sub] > 1 && topology.required.is_some()),
                segment,
                forbidden: &*rules.forbidden - &asked.forbidden,
                limits: rules.limits,
            });
            for (_, uid) in uids {
                let rank = u32::try_from(asked.ranks.len()).unwrap_or(u32::MAX);
                if let Some(placement) = self.placement_of(&uid) {
                    asked.pinned.push(Pinned { rank, placement });
                }
                asked.ranks.push(uid);
            }
        }
        asked
    }

    /// Members that wait or have places, in the order of their ranks.
    fn seats(&self, group: &GroupName, spec: &GroupSpec) -> Vec<Seat> {
        let mut members: Vec<Seat> = Vec::new();
        for uid in self.present(group) {
            let Some(record) = self.pods.get(&uid) else { continue };
            let Some(member) = &record.member else { continue };
            let Some(sub) = spec.subs.iter().position(|sub| sub.name == member.sub) else {
                continue;
            };
            let is_waiting = record.waits_for(&self.config.scheduler_name);
            // Of whom the picture knows nothing (his node is gone) nothing can be said.
            let is_known = record.place.is_none() || self.picture.has(&uid).is_some();
            if is_known && (is_waiting || record.occupies()) {
                let name = Arc::clone(&record.pod.meta.name.name);
                members.push((sub, member.rank, name, uid));
            }
        }
        members.sort();
        members
    }

    /// Ports of the host that the members take.
    fn ports_of(&self, members: &[Seat]) -> Ports {
        let records = members.iter().filter_map(|(.., uid)| self.pods.get(uid));
        Ports::of(records.flat_map(|record| &record.footprint.ports))
    }

    /// Nodes on which a member cannot be, those included that were tried for it.
    fn forbidden_to(
        &self,
        uid: &Arc<str>,
        mark: Mark,
        ask: &Ask,
        tried: Option<&Arc<NodeSet>>,
        known: &mut Known,
    ) -> Arc<NodeSet> {
        let record = self.pods.get(uid).filter(|_| self.is_kept_away_by_room_alone(uid, mark, ask));
        let wish = record.filter(|_| !ask.is_exact).map(|_| self.devices.request_key(ask));
        let forbidden = match (record, &known.by_room) {
            (Some(record), Some(((footprint, extended, wanted), forbidden)))
                if Arc::ptr_eq(&record.footprint, footprint)
                    && *extended == ask.extended
                    && *wanted == wish =>
            {
                Arc::clone(forbidden)
            }
            (record, _) => {
                let forbidden = Arc::new(self.forbidden(uid, mark, ask, true));
                if let Some(record) = record {
                    let footprint = Arc::clone(&record.footprint);
                    let forbidden = Arc::clone(&forbidden);
                    known.by_room = Some(((footprint, ask.extended.clone(), wish), forbidden));
                }
                forbidden
            }
        };
        let Some(tried) = tried else { return forbidden };
        match &known.joined {
            Some([one, other, both])
                if Arc::ptr_eq(one, &forbidden) && Arc::ptr_eq(other, tried) =>
            {
                Arc::clone(both)
            }
            _ => {
                let both = Arc::new(&*forbidden | &**tried);
                known.joined = Some([forbidden, Arc::clone(tried), Arc::clone(&both)]);
                both
            }
        }
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

impl Asked {
    /// Members of a group, by its number.
    pub(super) fn alike(&self, group: u32) -> &[Arc<str>] {
        let group = group as usize;
        let count =
            |groups: &[Group]| groups.iter().map(|group| group.count as usize).sum::<usize>();
        let first = count(self.gang.groups.get(..group).unwrap_or_default());
        let members = self.gang.groups.get(group).map_or(0, |group| group.count as usize);
        self.ranks.get(first..first + members).unwrap_or_default()
    }
}

impl Rules {
    /// As two members have them that must not be told apart.
    fn join(&mut self, other: Self) {
        if self.forbidden != other.forbidden {
            self.forbidden = Arc::new(&*self.forbidden | &*other.forbidden);
        }
        self.limits.extend(other.limits);
        self.limits.sort_unstable();
        self.limits.dedup();
    }
}

/// Counts the members that want each claim. Whether this one wants anything that no member before it does.
fn count_claims(ask: &Ask, claims: &mut BTreeMap<Arc<str>, u32>) -> bool {
    let mut is_new = !ask.extended.is_empty();
    for claim in ask.wanted() {
        let members = claims.entry(Arc::clone(&claim.meta.uid)).or_default();
        is_new |= *members == 0;
        *members += 1;
    }
    is_new || ask.wanted().next().is_none()
}

/// Who shares a claim has the devices that the first of them asks for.
fn without_gpus(shape: &Shape) -> Arc<Shape> {
    Arc::new(Shape { gpus: GpuDemand::None, models: ModelSet::ALL, ..shape.clone() })
}

fn of_segments(sub: &str) -> String {
    format!(
        "members of {sub} may be on different nodes or take different ports, and were only looked for on nodes \
         where each of them may be: give those that differ a subgroup of their own"
    )
}

fn of_minimum(sub: &str) -> String {
    format!(
        "members of {sub} ask for different things, fewer than all are needed, and it was only looked for those \
         who come first: give those that differ a subgroup and a minimum of their own"
    )
}

/// Nodes that are forbidden to all who wait.
fn for_all(alike: &[Alike]) -> NodeSet {
    let mut waiting = alike.iter().filter(|one| !one.is_placed).map(|one| &*one.rules.forbidden);
    let first = waiting.next().cloned().unwrap_or_default();
    waiting.fold(first, |all, own| &all & own)
}

/// Names of groups are unique: the second shape of a subgroup has its number behind the name.
fn suffix(number: usize, sub: usize) -> String {
    if number == sub { String::new() } else { format!("-{number}") }
}
