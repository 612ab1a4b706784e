//! Builds the engine's request for a gang: members with equal requests and equal node constraints
//! form a group. Requirements that shapes do not express become constraints of the groups: ports,
//! storage, allocated claims, nodes by name.

mod ports;
mod restrictions;
mod segments;
mod surplus;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use octavo_api::names::LABEL_CLIQUE;
use octavo_engine::gang::{Group, NodeLimit};
use octavo_engine::gpu::ModelSet;
use octavo_engine::shape::GpuDemand;
use octavo_engine::solve::{NodeSet, Pinned};
use octavo_engine::workload::{Profile, TopologyConstraint};
use octavo_engine::{Gang, Placement, Shape};

use octavo_kube_io::objects::{ClaimUid, PodUid};

use crate::devices::{Ask, RequestKey};
use crate::groups::{GroupName, GroupSpec};
use crate::predicates::{Exclusions, PodRequests};
use crate::state::Scheduler;
use crate::state::cache::Cache;
use crate::state::cache::maintenance::Stay;
use crate::state::cache::node_mask::NodeMask;
use crate::state::cycle::decide::{Room, is_described_by_class};
use crate::state::reporter::pending_reason::PendingReason;
use ports::Ports;
pub(in crate::state) use restrictions::{FailedPlace, Restrictions, RuledOutNodes, rule_out};
pub(in crate::state) use segments::IncompleteSegment;

/// The engine's request for a gang, and the pods of its ranks.
#[derive(Debug)]
pub(in crate::state) struct GangRequest {
    pub(in crate::state) gang: Gang,
    pub(in crate::state) pinned: Vec<Pinned>,
    /// Pods by rank.
    pub(in crate::state) ranks: Vec<PodUid>,
    /// Nodes that are forbidden to all groups.
    pub(in crate::state) forbidden: NodeSet,
    /// Members of incomplete segments, which are not requested.
    pub(in crate::state) incomplete: Vec<IncompleteSegment>,
    /// Why the gang may be schedulable although the engine finds no plan: the request is stricter
    /// than required.
    pub(in crate::state) caveats: BTreeSet<String>,
    /// Whether members share a claim that is not allocated yet. Its node decides the node of them
    /// all, which the engine does not know.
    pub(in crate::state) shares_claim: bool,
    /// Whether pending members need what the engine does not count.
    pub(in crate::state) has_uncounted: bool,
}

/// Sort key of a member: subgroup, rank in it, name, UID.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MemberOrder {
    sub: usize,
    rank: Option<u32>,
    name: Arc<str>,
    uid: PodUid,
}

/// Members of a subgroup with equal requests.
struct MemberClass {
    sub: usize,
    shape: Arc<Shape>,
    /// Whether all of them are placed. Then the shape is derived from what they use.
    is_placed: bool,
    constraints: NodeConstraints,
    /// Pods, each with its number among the members of the subgroup.
    uids: Vec<(u32, PodUid)>,
}

/// Node constraints of a member that its shape does not express.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct NodeConstraints {
    forbidden: Arc<NodeSet>,
    limits: Vec<NodeLimit>,
}

/// What decides which nodes are forbidden to a pod: its footprint, its extended resources, its wish
/// where only the allocator can decide, how long it stays, and the domains from which other pods keep
/// it away.
type RoomKey = (Arc<PodRequests>, BTreeMap<String, u64>, Option<RequestKey>, Stay, Exclusions);

/// Forbidden nodes of the last member. Members are mostly equal.
#[derive(Default)]
struct ForbiddenCache {
    /// By the member's resources.
    by_room: Option<(RoomKey, Arc<NodeSet>)>,
    /// Two sets and their union.
    joined: Option<[Arc<NodeSet>; 3]>,
}

impl Scheduler {
    /// Builds the request for a gang.
    pub(in crate::state) fn gang_request(
        &mut self,
        group: &GroupName,
        spec: &Arc<GroupSpec>,
    ) -> Result<GangRequest, PendingReason> {
        self.gang_request_within(group, spec, &Restrictions::default(), Room::Now)
    }

    /// Builds the request for a gang without nodes that failed.
    pub(in crate::state) fn gang_request_excluding(
        &mut self,
        group: &GroupName,
        spec: &Arc<GroupSpec>,
        ruled_out: &RuledOutNodes,
    ) -> Result<GangRequest, PendingReason> {
        self.gang_request_within(group, spec, &Restrictions::without(ruled_out.clone()), Room::Now)
    }

    /// Builds the request for a gang under restrictions, on nodes with this room.
    pub(in crate::state) fn gang_request_within(
        &mut self,
        group: &GroupName,
        spec: &Arc<GroupSpec>,
        restrictions: &Restrictions,
        room: Room<'_>,
    ) -> Result<GangRequest, PendingReason> {
        let wishes = self.cache.wishes_of(spec).map_err(PendingReason::Group)?;
        let mut members = self.cache.member_order(group, spec);
        self.cache.leave_out_surplus(&mut members, group, spec);
        let sizes: Vec<_> =
            wishes.subs.iter().map(|(_, segment)| segment.map(|segment| segment.size)).collect();
        let (incomplete, is_incomplete) =
            segments::incomplete(spec, &sizes, members.iter().map(|member| member.sub));
        let mut number = 0;
        members.retain(|_| {
            number += 1;
            !is_incomplete[number - 1]
        });
        let ports = self.cache.ports_of(&members);
        let mut classes: Vec<MemberClass> = Vec::new();
        let mut claims: BTreeMap<ClaimUid, u32> = BTreeMap::new();
        let mut cache = ForbiddenCache::default();
        let mut caveats = BTreeSet::new();
        let mut next_number = vec![0_u32; spec.subs.len()];
        let (mut has_uncounted, mut is_in_domain) = (false, false);
        for MemberOrder { sub, uid, .. } in members {
            let number = next_number[sub];
            next_number[sub] += 1;
            let segment = wishes.subs.get(sub).and_then(|(_, segment)| *segment);
            // Members of a segment stay one group: a node forbidden to one of them is forbidden to
            // all.
            let is_segmented = segment.is_some();
            let is_placed = self.cache.pod(&uid).is_some_and(|record| record.place.is_some());
            let (shape, constraints) = if is_placed {
                let Some(desired) = self.cache.engine().desired(&uid) else { continue };
                let limits = self.cache.limits_of(&uid, &ports, restrictions);
                let constraints = NodeConstraints { limits, ..NodeConstraints::default() };
                (Arc::clone(&desired.shape), constraints)
            } else {
                let ask = self.ask(&uid)?;
                let (shape, mask) = self.shape_of_waiting(&uid, &ask).ok_or(PendingReason::Gone)?;
                let is_new = count_claim_users(&ask, &mut claims);
                let shape = if is_new || is_segmented { shape } else { without_gpus(&shape) };
                let forbidden = self.cache.forbidden_nodes_of_member(
                    &uid,
                    mask,
                    &ask,
                    restrictions.ruled_out(&uid),
                    room,
                    &mut cache,
                );
                has_uncounted |= self.cache.has_uncounted(&uid, &ask);
                is_in_domain |= ask.domain().is_some();
                let limits = self.cache.limits_of(&uid, &ports, restrictions);
                (shape, NodeConstraints { forbidden, limits })
            };
            // Node constraints of a running member may be unknown. It joins the class with equal
            // resources.
            let is_same_class = |class: &MemberClass| {
                let amounts = |shape: &Shape| (shape.resources, shape.gpus.clone());
                let may_differ = class.is_placed || is_placed;
                class.sub == sub
                    && (*class.shape == *shape
                        || (may_differ && amounts(&class.shape) == amounts(&shape)))
                    && (is_segmented
                        || class.constraints == constraints
                        || (may_differ && class.constraints.limits == constraints.limits))
            };
            match classes.iter_mut().find(|class| is_same_class(class)) {
                Some(class) => {
                    if class.is_placed && !is_placed {
                        (class.shape, class.is_placed, class.constraints) =
                            (shape, false, constraints);
                    } else if !is_placed && class.constraints != constraints {
                        class.constraints.join(constraints);
                        caveats.insert(segment_caveat(&spec.subs[sub].name));
                    }
                    class.uids.push((number, uid));
                }
                None => classes.push(MemberClass {
                    sub,
                    shape,
                    is_placed,
                    constraints,
                    uids: vec![(number, uid)],
                }),
            }
        }
        for class in &classes {
            if let Some(size) = sizes.get(class.sub).copied().flatten() {
                let numbers = class.uids.iter().map(|(number, _)| *number);
                segments::check(spec, class.sub, size, numbers)?;
            }
        }
        let mut request = self.cache.assemble_gang_request(group, spec, &wishes, classes);
        request.incomplete = incomplete;
        request.caveats.append(&mut caveats);
        request.shares_claim = claims.values().any(|members| *members > 1);
        request.has_uncounted = has_uncounted;
        if is_in_domain {
            self.cache.keep_in_a_clique(&mut request.gang);
        }
        Ok(request)
    }
}

impl Cache {
    fn assemble_gang_request(
        &self,
        group: &GroupName,
        spec: &GroupSpec,
        wishes: &crate::groups::TopologyRequests,
        classes: Vec<MemberClass>,
    ) -> GangRequest {
        let mut unmet_minimum: Vec<u32> = spec.subs.iter().map(|sub| sub.min).collect();
        let mut request = GangRequest {
            gang: Gang { profile: self.profile_of_group(group, spec), groups: Vec::new() },
            pinned: Vec::new(),
            ranks: Vec::new(),
            forbidden: forbidden_to_all(&classes),
            incomplete: Vec::new(),
            caveats: BTreeSet::new(),
            shares_claim: false,
            has_uncounted: false,
        };
        let mut parts = vec![0_u32; spec.subs.len()];
        for class in &classes {
            parts[class.sub] += 1;
        }
        for (number, MemberClass { sub, shape, uids, constraints, .. }) in
            classes.into_iter().enumerate()
        {
            let count = u32::try_from(uids.len()).unwrap_or(u32::MAX);
            let min = unmet_minimum[sub].min(count);
            unmet_minimum[sub] -= min;
            if parts[sub] > 1 && min < count {
                request.caveats.insert(minimum_caveat(&spec.subs[sub].name));
            }
            let (topology, segment) = wishes.subs.get(sub).copied().unwrap_or_default();
            request.gang.groups.push(Group {
                name: format!("{}{}", spec.subs[sub].name, suffix(number, sub)).into(),
                shape,
                count,
                min,
                topology,
                // Classes of one subgroup must share the domain that the subgroup requires.
                colocation_id: u32::try_from(sub)
                    .ok()
                    .filter(|_| parts[sub] > 1 && topology.required.is_some()),
                segment,
                forbidden: &*constraints.forbidden - &request.forbidden,
                limits: constraints.limits,
                penalties: Arc::default(),
            });
            for (_, uid) in uids {
                let rank = u32::try_from(request.ranks.len()).unwrap_or(u32::MAX);
                if let Some(placement) = self.placement_of(&uid) {
                    request.pinned.push(Pinned { rank, placement });
                }
                request.ranks.push(uid);
            }
        }
        request
    }

    /// Prefers one NVLink clique for a gang that says nothing of topology: its members share memory over NVLink.
    fn keep_in_a_clique(&self, gang: &mut Gang) {
        let is_free = |wish: &TopologyConstraint| *wish == TopologyConstraint::default();
        let is_silent = is_free(&gang.profile.topology)
            && gang.groups.iter().all(|group| is_free(&group.topology) && group.segment.is_none());
        if is_silent {
            gang.profile.topology.preferred = self.level(LABEL_CLIQUE);
        }
    }

    /// Pending and placed members, in rank order.
    fn member_order(&self, group: &GroupName, spec: &GroupSpec) -> Vec<MemberOrder> {
        let mut members: Vec<MemberOrder> = Vec::new();
        for uid in self.present_members(group) {
            let Some(record) = self.pod(&uid) else { continue };
            let Some(member) = &record.member else { continue };
            let Some(sub) = spec.subs.iter().position(|sub| sub.name == member.sub) else {
                continue;
            };
            let is_waiting = record.is_pending_for(&self.config().scheduler_name);
            // Skip members on nodes missing from the cache.
            let is_known = record.place.is_none() || self.engine().desired(&uid).is_some();
            if is_known && (is_waiting || record.occupies()) {
                let name = Arc::clone(&record.pod.meta.name.name);
                members.push(MemberOrder { sub, rank: member.rank, name, uid });
            }
        }
        members.sort();
        members
    }

    /// Host ports of the members.
    fn ports_of(&self, members: &[MemberOrder]) -> Ports {
        let records = members.iter().filter_map(|member| self.pod(&member.uid));
        Ports::of(records.flat_map(|record| &record.footprint.ports))
    }

    /// How many members one node may have, as far as it concerns a member.
    fn limits_of(
        &self,
        uid: &PodUid,
        ports: &Ports,
        restrictions: &Restrictions,
    ) -> Vec<NodeLimit> {
        let record = self.pod(uid);
        let mut limits = record.map(|record| ports.limits(&record.footprint)).unwrap_or_default();
        restrictions.add_limit(uid, &mut limits);
        limits
    }

    /// Nodes that are forbidden to a member, including those that failed for it.
    fn forbidden_nodes_of_member(
        &self,
        uid: &PodUid,
        mask: NodeMask,
        ask: &Ask,
        ruled_out: Option<&Arc<NodeSet>>,
        room: Room<'_>,
        cache: &mut ForbiddenCache,
    ) -> Arc<NodeSet> {
        let away = self.exclusions(uid);
        let record = self.pod(uid).filter(|_| is_described_by_class(mask, ask, &away));
        let wish = record.filter(|_| !ask.is_exact).map(|_| self.devices().request_key(ask));
        let stay = self.stay(uid);
        let forbidden = match (record, &cache.by_room) {
            (Some(record), Some(((footprint, extended, wanted, stayed, from), forbidden)))
                if Arc::ptr_eq(&record.footprint, footprint)
                    && *extended == ask.extended
                    && *wanted == wish
                    && *stayed == stay
                    && *from == away =>
            {
                Arc::clone(forbidden)
            }
            (record, _) => {
                let forbidden = Arc::new(self.forbidden_nodes(uid, mask, ask, &away, room));
                if let Some(record) = record {
                    let footprint = Arc::clone(&record.footprint);
                    let forbidden = Arc::clone(&forbidden);
                    let key = (footprint, ask.extended.clone(), wish, stay, away);
                    cache.by_room = Some((key, forbidden));
                }
                forbidden
            }
        };
        let Some(ruled_out) = ruled_out else { return forbidden };
        match &cache.joined {
            Some([forbidden_part, ruled_out_part, union])
                if Arc::ptr_eq(forbidden_part, &forbidden)
                    && Arc::ptr_eq(ruled_out_part, ruled_out) =>
            {
                Arc::clone(union)
            }
            _ => {
                let union = Arc::new(&*forbidden | &**ruled_out);
                cache.joined = Some([forbidden, Arc::clone(ruled_out), Arc::clone(&union)]);
                union
            }
        }
    }

    pub(in crate::state) fn profile_of_group(
        &self,
        group: &GroupName,
        spec: &GroupSpec,
    ) -> Profile {
        let members = self.members(group);
        let mut records = members.filter_map(|uid| self.pod(uid));
        let priority = spec.priority.or_else(|| {
            let all = self.members(group);
            all.filter_map(|uid| self.pod(uid)).map(|record| record.pod.spec.priority).max()
        });
        let mut profile = records
            .next()
            .map_or_else(|| Profile::new(group.to_string()), |record| self.profile_of(record));
        profile.priority = priority.unwrap_or(0);
        profile
    }

    /// Placement of a pod in the engine cache.
    pub(in crate::state) fn placement_of(&self, uid: &PodUid) -> Option<Placement> {
        let id = self.engine().member(uid)?;
        self.engine().world.workloads.member(id).map(|member| member.placement.clone())
    }
}

impl GangRequest {
    /// Members of a group, by its number.
    pub(in crate::state) fn members_of_group(&self, group: u32) -> &[PodUid] {
        let group = group as usize;
        let count =
            |groups: &[Group]| groups.iter().map(|group| group.count as usize).sum::<usize>();
        let first = count(self.gang.groups.get(..group).unwrap_or_default());
        let members = self.gang.groups.get(group).map_or(0, |group| group.count as usize);
        self.ranks.get(first..first + members).unwrap_or_default()
    }
}

impl NodeConstraints {
    /// Joins the constraints of two members that must stay in one group.
    fn join(&mut self, other: Self) {
        if self.forbidden != other.forbidden {
            self.forbidden = Arc::new(&*self.forbidden | &*other.forbidden);
        }
        self.limits.extend(other.limits);
        self.limits.sort_unstable();
        self.limits.dedup();
    }
}

/// Counts the users of each unallocated claim. Returns whether this member requests anything that
/// no earlier member does.
fn count_claim_users(ask: &Ask, claims: &mut BTreeMap<ClaimUid, u32>) -> bool {
    let mut is_new = !ask.extended.is_empty();
    for claim in ask.wanted() {
        let members = claims.entry(claim.uid()).or_default();
        is_new |= *members == 0;
        *members += 1;
    }
    is_new || ask.wanted().next().is_none()
}

/// A member that shares a claim uses the devices that the first user requests.
fn without_gpus(shape: &Shape) -> Arc<Shape> {
    Arc::new(Shape { gpus: GpuDemand::None, models: ModelSet::ALL, ..shape.clone() })
}

fn segment_caveat(sub: &str) -> String {
    format!(
        "members of {sub} have different feasible nodes or host ports, and only nodes that suit all of \
         them were searched: give members that differ a subgroup of their own"
    )
}

fn minimum_caveat(sub: &str) -> String {
    format!(
        "members of {sub} have different requests, not all of them are required, and only the first \
         ones were searched for: give members that differ a subgroup and a minimum of their own"
    )
}

/// Nodes that are forbidden to all pending members.
fn forbidden_to_all(classes: &[MemberClass]) -> NodeSet {
    let mut forbidden_sets =
        classes.iter().filter(|class| !class.is_placed).map(|class| &*class.constraints.forbidden);
    let first = forbidden_sets.next().cloned().unwrap_or_default();
    forbidden_sets.fold(first, |all, forbidden| &all & forbidden)
}

/// Makes group names unique: the second shape of a subgroup gets its number as a suffix.
fn suffix(number: usize, sub: usize) -> String {
    if number == sub { String::new() } else { format!("-{number}") }
}
