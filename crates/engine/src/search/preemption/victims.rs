//! Possible victims and the types of disruption.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::PreemptionBudget;
use super::disruption_cost::DisruptionCost;
use super::eviction_uses::{EvictionUses, LimitIndex};
use crate::World;
use crate::node::NodeId;
use crate::shape::Shape;
use crate::topology::{DomainId, LevelId};
use crate::workload::{LimitId, Member, MemberId, Workload, WorkloadId};

/// Index of a pod in [`VictimPool::pods`].
pub(super) type PodIndex = u32;

/// All possible victims.
#[derive(Debug, Default)]
pub(super) struct VictimPool {
    pub(super) workloads: Vec<VictimWorkload>,
    pub(super) pods: Vec<Pod>,
    /// Pods that may be evicted or moved under each limit. Limits that no plan can exceed are left
    /// out.
    pub(super) limits: Vec<u32>,
    /// Pods of node `n` are `by_node[starts[n]..starts[n + 1]]`.
    starts: Vec<u32>,
    by_node: Vec<PodIndex>,
}

/// A workload with possible victims.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Debug)]
pub(super) struct VictimWorkload {
    pub(super) id: WorkloadId,
    pub(super) priority: i32,
    /// Members that run.
    pub(super) members: u32,
    /// Members above the minimum, which may be evicted alone.
    pub(super) slack: u32,
    pub(super) may_move: bool,
    pub(super) may_evict: bool,
    /// Whether the limits of its members allow to evict all of them.
    pub(super) may_evict_all: bool,
    /// Whether a limit that a plan can exceed counts some of its members.
    pub(super) is_limited: bool,
    pub(super) scope: RelocationScope,
    /// The domain of the preferred level that contains all its members, if there is one.
    pub(super) near: Option<DomainId>,
    /// Whether an eviction on one node has to do with another node.
    pub(super) is_multi_node: bool,
    pub(super) pods: std::ops::Range<PodIndex>,
    seconds_at_risk: i64,
    /// Thousandths of GPUs that lose work when any member is disrupted; none: each member loses
    /// only its own.
    all_milli: Option<i64>,
}

/// The allowed targets of a moved member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum RelocationScope {
    /// To any node.
    Anywhere,
    /// Within the domain in which the others are.
    In(DomainId),
    /// To any node in some domain of the level, as there are no other members.
    Any(LevelId),
}

/// A possible victim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pod {
    pub(super) id: MemberId,
    pub(super) workload: u32,
    /// Pods of one class have equal requests, equal possible targets, and one limit.
    pub(super) class: u32,
    /// The limit that counts it.
    pub(super) limit: Option<LimitIndex>,
    gpu_milli: i64,
}

/// A disruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Disruption {
    /// One pod is restarted elsewhere.
    Move(PodIndex),
    /// One pod of a workload with members above its minimum is evicted.
    Evict(PodIndex),
    /// A whole workload is evicted, by index in the pool.
    EvictAll(u32),
}

/// Limits while victims are gathered, in the order in which members name them.
#[derive(Default)]
struct GatheredLimits {
    known: BTreeMap<LimitId, LimitIndex>,
    /// By limit: pods that may be evicted or moved.
    left: Vec<u32>,
    /// By limit: possible victims.
    pods: Vec<u32>,
}

impl GatheredLimits {
    fn index(&mut self, world: &World, limit: LimitId) -> LimitIndex {
        let next = LimitIndex::try_from(self.left.len()).unwrap_or(LimitIndex::MAX);
        *self.known.entry(limit).or_insert_with(|| {
            self.left.push(world.workloads.eviction_limits.allowance(limit));
            self.pods.push(0);
            next
        })
    }
}

/// What is gone of a pool while victims are chosen.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken {
    /// By pod: it is gone.
    pub(super) gone: Vec<bool>,
    /// By workload: evicted pods.
    pub(super) lost: Vec<u32>,
    /// By limit: evicted and moved pods.
    pub(super) used: Vec<u32>,
}

impl Taken {
    /// Nothing of a pool.
    pub(super) fn nothing(pool: &VictimPool) -> Self {
        Self {
            gone: vec![false; pool.pods.len()],
            lost: vec![0; pool.workloads.len()],
            used: vec![0; pool.limits.len()],
        }
    }

    /// Counts a pod that leaves. A moved pod stays with its workload.
    pub(super) fn take(&mut self, pool: &VictimPool, pod: PodIndex, is_moved: bool) {
        let Pod { workload, limit, .. } = *pool.pod(pod);
        self.lost[workload as usize] += u32::from(!is_moved);
        if let Some(limit) = limit {
            self.used[limit as usize] += 1;
        }
    }

    /// The number of pods of a workload that may still be evicted alone.
    pub(super) fn slack(&self, pool: &VictimPool, workload: u32) -> u32 {
        pool.workloads[workload as usize].slack.saturating_sub(self.lost[workload as usize])
    }

    /// The pods that may still be evicted or moved under a limit.
    pub(super) fn left(&self, pool: &VictimPool, limit: LimitIndex) -> u32 {
        pool.limits[limit as usize].saturating_sub(self.used[limit as usize])
    }

    /// Whether limits allow these further pods.
    pub(super) fn allows(&self, pool: &VictimPool, uses: &EvictionUses) -> bool {
        uses.is_within(|limit| self.left(pool, limit))
    }
}

/// The common properties of a pod class.
#[derive(Clone, Debug)]
pub(super) struct PodClass {
    pub(super) shape: Arc<Shape>,
    pub(super) scope: RelocationScope,
}

impl VictimPool {
    /// Collects all victims that `preemption_budget` allows, except those of the workload `own`.
    pub(super) fn gather(
        world: &World,
        preemption_budget: &PreemptionBudget,
        own: Option<WorkloadId>,
    ) -> Self {
        let mut pool = Self::default();
        let mut limits = GatheredLimits::default();
        for (id, workload) in world.workloads.iter() {
            if Some(id) != own {
                pool.add(world, preemption_budget, &mut limits, id, workload);
            }
        }
        pool.set_limits(limits);
        let mut nodes = Vec::with_capacity(pool.pods.len());
        pool.starts = vec![0; world.cluster.node_count() + 1];
        for pod in &pool.pods {
            let node = world.workloads.member(pod.id).map_or(0, |member| member.placement.node.0);
            nodes.push(node);
            pool.starts[node as usize + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut pool.starts {
            sum += *start;
            *start = sum;
        }
        let mut next = pool.starts.clone();
        pool.by_node = vec![0; pool.pods.len()];
        for (pod, node) in (0..).zip(nodes) {
            pool.by_node[next[node as usize] as usize] = pod;
            next[node as usize] += 1;
        }
        pool
    }

    fn add(
        &mut self,
        world: &World,
        preemption_budget: &PreemptionBudget,
        limits: &mut GatheredLimits,
        id: WorkloadId,
        workload: &Workload,
    ) {
        let profile = &workload.profile;
        let may_evict = preemption_budget.may_evict(profile);
        let scope = if preemption_budget.moves > 0 && profile.is_movable {
            relocation_scope(world, workload)
        } else {
            None
        };
        if !may_evict && scope.is_none() {
            return;
        }
        let members = workload.member_count();
        let is_gang = workload.min_members > 1 || workload.coupling.is_whole;
        let slack = if workload.coupling.is_whole {
            0
        } else if is_gang {
            members.saturating_sub(workload.min_members)
        } else {
            members
        };
        let first = self.pods.len();
        let workload_index = u32::try_from(self.workloads.len()).unwrap_or(u32::MAX);
        let mut all_milli = 0;
        let mut nodes = (None, false);
        let mut may_evict_all = true;
        for (number, member) in (0..).zip(&workload.members) {
            let Some(member) = member else { continue };
            let gpu_milli = member.gpu_milli();
            all_milli += gpu_milli;
            let node = member.placement.node;
            nodes = (Some(node), nodes.1 || nodes.0.is_some_and(|other| other != node));
            let id = MemberId { workload: id, member: number };
            let limit = member.limit.map(|limit| limits.index(world, limit));
            if limit.is_some_and(|limit| limits.left[limit as usize] == 0) {
                may_evict_all = false;
                continue;
            }
            let (workload, class) = (workload_index, u32::MAX);
            self.pods.push(Pod { id, workload, class, limit, gpu_milli });
        }
        let uses: EvictionUses = self.pods[first..].iter().filter_map(|pod| pod.limit).collect();
        may_evict_all &= uses.is_within(|limit| limits.left[limit as usize]);
        if slack == 0 && scope.is_none() && !may_evict_all {
            self.pods.truncate(first);
        }
        if self.pods.len() == first {
            return;
        }
        for (limit, pods) in uses.iter() {
            limits.pods[limit as usize] += pods;
        }
        let index = |count| PodIndex::try_from(count).unwrap_or(PodIndex::MAX);
        self.workloads.push(VictimWorkload {
            id,
            priority: profile.priority,
            members,
            slack,
            may_move: scope.is_some(),
            may_evict,
            may_evict_all,
            is_limited: false,
            scope: scope.unwrap_or(RelocationScope::Anywhere),
            near: scope.and_then(|_| near(world, workload)),
            is_multi_node: may_evict && nodes.1 && slack < members,
            pods: index(first)..index(self.pods.len()),
            seconds_at_risk: i64::from(profile.seconds_at_risk),
            all_milli: is_gang.then_some(all_milli),
        });
    }

    /// Keeps the limits that a plan can exceed.
    fn set_limits(&mut self, limits: GatheredLimits) {
        let is_tight =
            |limit: &LimitIndex| limits.pods[*limit as usize] > limits.left[*limit as usize];
        for pod in &mut self.pods {
            pod.limit = pod.limit.filter(is_tight);
            self.workloads[pod.workload as usize].is_limited |= pod.limit.is_some();
        }
        if limits.pods.iter().zip(&limits.left).any(|(pods, left)| pods > left) {
            self.limits = limits.left;
        }
    }

    /// Assigns equal pods to one class; returns the classes by index.
    pub(super) fn assign_pod_classes(&mut self, world: &World) -> Vec<PodClass> {
        type ClassKey = (Arc<Shape>, RelocationScope, Option<LimitIndex>);
        let mut classes = Vec::new();
        let mut cache: BTreeMap<ClassKey, u32> = BTreeMap::new();
        // Pods of one class are mostly adjacent and share their shape.
        let mut last: Option<(ClassKey, u32)> = None;
        for pod in &mut self.pods {
            let Some(member) = world.workloads.member(pod.id) else { continue };
            let scope = self.workloads[pod.workload as usize].scope;
            if let Some(((shape, last_scope, last_limit), class)) = &last
                && Arc::ptr_eq(shape, &member.shape)
                && (*last_scope, *last_limit) == (scope, pod.limit)
            {
                pod.class = *class;
                continue;
            }
            let next = u32::try_from(classes.len()).unwrap_or(u32::MAX);
            let shape = Arc::clone(&member.shape);
            let key = (Arc::clone(&shape), scope, pod.limit);
            pod.class = *cache.entry(key.clone()).or_insert_with(|| {
                classes.push(PodClass { shape, scope });
                next
            });
            last = Some((key, pod.class));
        }
        classes
    }

    pub(super) fn on(&self, node: NodeId) -> &[PodIndex] {
        let bounds = self.starts.get(node.0 as usize..=node.0 as usize + 1);
        bounds.map_or(&[], |bounds| &self.by_node[bounds[0] as usize..bounds[1] as usize])
    }

    pub(super) fn pod(&self, pod: PodIndex) -> &Pod {
        &self.pods[pod as usize]
    }

    pub(super) fn workload(&self, pod: PodIndex) -> &VictimWorkload {
        &self.workloads[self.pod(pod).workload as usize]
    }

    pub(super) fn member<'w>(&self, world: &'w World, pod: PodIndex) -> Option<&'w Member> {
        world.workloads.member(self.pod(pod).id)
    }

    /// The pods of a disruption.
    pub(super) fn pods_of(&self, disruption: Disruption) -> std::ops::Range<PodIndex> {
        match disruption {
            Disruption::Move(pod) | Disruption::Evict(pod) => pod..pod + 1,
            Disruption::EvictAll(workload) => self.workloads[workload as usize].pods.clone(),
        }
    }

    /// What these pods use of the limits.
    pub(super) fn uses(&self, pods: impl IntoIterator<Item = PodIndex>) -> EvictionUses {
        if self.limits.is_empty() {
            return EvictionUses::default();
        }
        pods.into_iter().filter_map(|pod| self.pod(pod).limit).collect()
    }

    /// The cost of a single disruption.
    pub(super) fn cost(&self, disruption: Disruption) -> DisruptionCost {
        match disruption {
            Disruption::Move(pod) => {
                let milli = self.pod(pod).gpu_milli;
                DisruptionCost { pods: 1, lost: self.lost(pod), milli, ..DisruptionCost::ZERO }
            }
            Disruption::Evict(pod) => {
                let workload = self.workload(pod);
                let (priority, age) = (workload.priority.into(), workload.age());
                let (lost, milli) = (self.lost(pod), self.pod(pod).gpu_milli);
                let highest = Some(workload.priority);
                DisruptionCost { pods: 1, evicted: 1, highest, lost, priority, milli, age }
            }
            Disruption::EvictAll(workload) => {
                let workload = &self.workloads[workload as usize];
                let count = i64::from(workload.members);
                let each = workload.pods.clone().map(|pod| self.pod(pod).gpu_milli);
                let milli = workload.all_milli.unwrap_or_else(|| each.sum());
                let lost = milli.saturating_mul(workload.seconds_at_risk);
                let priority = i64::from(workload.priority) * count;
                let age = workload.age() * count;
                let highest = Some(workload.priority);
                DisruptionCost { pods: count, evicted: count, highest, lost, priority, milli, age }
            }
        }
    }

    /// The cost of several disruptions: a workload loses its work once.
    pub(super) fn total_cost(
        &self,
        disruptions: impl IntoIterator<Item = Disruption>,
    ) -> DisruptionCost {
        let mut hit = std::collections::BTreeSet::new();
        let mut sum = DisruptionCost::ZERO;
        for disruption in disruptions {
            let mut cost = self.cost(disruption);
            let workload = match disruption {
                Disruption::Move(pod) | Disruption::Evict(pod) => self.pod(pod).workload,
                Disruption::EvictAll(workload) => workload,
            };
            if self.workloads[workload as usize].all_milli.is_some() && !hit.insert(workload) {
                cost.lost = 0;
            }
            sum = sum.plus(cost);
        }
        sum
    }

    fn lost(&self, pod: PodIndex) -> i64 {
        let workload = self.workload(pod);
        let milli = workload.all_milli.unwrap_or(self.pod(pod).gpu_milli);
        milli.saturating_mul(workload.seconds_at_risk)
    }
}

impl VictimWorkload {
    /// The newer the less.
    fn age(&self) -> i64 {
        -i64::from(self.id.0)
    }
}

/// The allowed targets for a member of a workload. None: its groups fix it, or the members already
/// violate the required level, which one move cannot repair.
pub(super) fn relocation_scope(world: &World, workload: &Workload) -> Option<RelocationScope> {
    match workload.profile.topology.required {
        _ if workload.coupling.is_fixed => None,
        None | Some(LevelId(0)) => Some(RelocationScope::Anywhere),
        Some(level) if workload.member_count() <= 1 => Some(RelocationScope::Any(level)),
        Some(level) => common_domain(world, workload, level).map(RelocationScope::In),
    }
}

/// The domain of the preferred level that contains all members of a gang, if there is one.
pub(super) fn near(world: &World, workload: &Workload) -> Option<DomainId> {
    let level = workload.profile.topology.preferred.filter(|_| workload.min_members > 1)?;
    common_domain(world, workload, level)
}

/// The domain of a level in which all members are.
fn common_domain(world: &World, workload: &Workload, level: LevelId) -> Option<DomainId> {
    let domain = |member: &Member| world.topology.domain_of(member.placement.node, level);
    let mut members = workload.members.iter().flatten();
    let first = domain(members.next()?)?;
    members.all(|member| domain(member) == Some(first)).then_some(first)
}
