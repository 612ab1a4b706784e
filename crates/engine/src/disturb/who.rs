//! Who may be disturbed, and how.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Allowance;
use super::price::Price;
use crate::World;
use crate::node::NodeId;
use crate::shape::Shape;
use crate::topology::{DomainId, LevelId};
use crate::workload::{Member, MemberId, Workload, WorkloadId};

/// Index of a pod in [`Crowd::pods`].
pub(super) type PodIndex = u32;

/// Everybody who may be disturbed.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    pub(super) crews: Vec<Crew>,
    pub(super) pods: Vec<Pod>,
    /// Pods of node `n` are `by_node[starts[n]..starts[n + 1]]`.
    starts: Vec<u32>,
    by_node: Vec<PodIndex>,
}

/// A workload of which somebody may be disturbed.
#[derive(Debug)]
pub(super) struct Crew {
    pub(super) id: WorkloadId,
    pub(super) priority: i32,
    /// Members that run.
    pub(super) members: u32,
    /// Members above the minimum: so many may be evicted alone.
    pub(super) slack: u32,
    pub(super) may_move: bool,
    pub(super) may_evict: bool,
    pub(super) home: Home,
    /// Domain of the preferred level in which its members are, if it is one.
    pub(super) near: Option<DomainId>,
    /// Whether an eviction on one node has to do with another node.
    pub(super) is_coupled: bool,
    pub(super) pods: std::ops::Range<PodIndex>,
    seconds_at_risk: i64,
    /// Thousandths of GPUs that lose work when any member is disturbed; none: each loses its own.
    all_milli: Option<i64>,
}

/// Where a member may be moved to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Home {
    /// To any node.
    Anywhere,
    /// Within the domain in which the others are.
    In(DomainId),
    /// To any node that is in a domain of the level: there are no others.
    Any(LevelId),
}

/// A running pod that may be disturbed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pod {
    pub(super) id: MemberId,
    pub(super) crew: u32,
    /// Pods of one kind ask for the same and may be moved to the same nodes.
    pub(super) kind: u32,
    gpu_milli: i64,
}

/// How a pod is disturbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Unit {
    /// One pod is restarted elsewhere.
    Move(PodIndex),
    /// One pod of a workload that has more than it needs goes for good.
    Evict(PodIndex),
    /// A whole workload goes, by index of its crew.
    EvictAll(u32),
}

/// What may be asked of a kind of pods once.
#[derive(Clone, Debug)]
pub(super) struct Kind {
    pub(super) shape: Arc<Shape>,
    pub(super) home: Home,
}

impl Crowd {
    /// Everybody whom `allowance` lets disturb, without the workload `own`.
    pub(super) fn gather(world: &World, allowance: &Allowance, own: Option<WorkloadId>) -> Self {
        let mut crowd = Self::default();
        for (id, workload) in world.workloads.iter() {
            if Some(id) != own {
                crowd.add(world, allowance, id, workload);
            }
        }
        let mut nodes = Vec::with_capacity(crowd.pods.len());
        crowd.starts = vec![0; world.cluster.node_count() + 1];
        for pod in &crowd.pods {
            let node = world.workloads.member(pod.id).map_or(0, |member| member.placement.node.0);
            nodes.push(node);
            crowd.starts[node as usize + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut crowd.starts {
            sum += *start;
            *start = sum;
        }
        let mut next = crowd.starts.clone();
        crowd.by_node = vec![0; crowd.pods.len()];
        for (pod, node) in (0..).zip(nodes) {
            crowd.by_node[next[node as usize] as usize] = pod;
            next[node as usize] += 1;
        }
        crowd
    }

    fn add(&mut self, world: &World, allowance: &Allowance, id: WorkloadId, workload: &Workload) {
        let profile = &workload.profile;
        let may_evict = allowance.may_evict(profile);
        let home =
            if allowance.moves > 0 && profile.is_movable { home(world, workload) } else { None };
        if !may_evict && home.is_none() {
            return;
        }
        let members = workload.member_count();
        let is_gang = workload.min_members > 1 || workload.bonds.is_whole;
        let slack = if workload.bonds.is_whole {
            0
        } else if is_gang {
            members.saturating_sub(workload.min_members)
        } else {
            members
        };
        let first = self.pods.len();
        let crew = u32::try_from(self.crews.len()).unwrap_or(u32::MAX);
        let mut all_milli = 0;
        let mut nodes = (None, false);
        for (number, member) in (0..).zip(&workload.members) {
            let Some(member) = member else { continue };
            let gpu_milli = member.gpu_milli();
            all_milli += gpu_milli;
            let node = member.placement.node;
            nodes = (Some(node), nodes.1 || nodes.0.is_some_and(|other| other != node));
            let id = MemberId { workload: id, member: number };
            self.pods.push(Pod { id, crew, kind: u32::MAX, gpu_milli });
        }
        let index = |count| PodIndex::try_from(count).unwrap_or(PodIndex::MAX);
        self.crews.push(Crew {
            id,
            priority: profile.priority,
            members,
            slack,
            may_move: home.is_some(),
            may_evict,
            home: home.unwrap_or(Home::Anywhere),
            near: home.and_then(|_| near(world, workload)),
            is_coupled: may_evict && nodes.1 && slack < members,
            pods: index(first)..index(self.pods.len()),
            seconds_at_risk: i64::from(profile.seconds_at_risk),
            all_milli: is_gang.then_some(all_milli),
        });
    }

    /// Gives equal pods equal kinds; the kinds by index.
    pub(super) fn tell_kinds(&mut self, world: &World) -> Vec<Kind> {
        let mut kinds = Vec::new();
        let mut known: BTreeMap<(Arc<Shape>, Home), u32> = BTreeMap::new();
        // Pods of one kind mostly follow one another and share their shape.
        let mut last: Option<(Arc<Shape>, Home, u32)> = None;
        for pod in &mut self.pods {
            let Some(member) = world.workloads.member(pod.id) else { continue };
            let home = self.crews[pod.crew as usize].home;
            if let Some((shape, last_home, kind)) = &last
                && Arc::ptr_eq(shape, &member.shape)
                && *last_home == home
            {
                pod.kind = *kind;
                continue;
            }
            let next = u32::try_from(kinds.len()).unwrap_or(u32::MAX);
            let shape = Arc::clone(&member.shape);
            pod.kind = *known.entry((Arc::clone(&shape), home)).or_insert_with(|| {
                kinds.push(Kind { shape: Arc::clone(&shape), home });
                next
            });
            last = Some((shape, home, pod.kind));
        }
        kinds
    }

    pub(super) fn on(&self, node: NodeId) -> &[PodIndex] {
        let bounds = self.starts.get(node.0 as usize..=node.0 as usize + 1);
        bounds.map_or(&[], |bounds| &self.by_node[bounds[0] as usize..bounds[1] as usize])
    }

    pub(super) fn pod(&self, pod: PodIndex) -> &Pod {
        &self.pods[pod as usize]
    }

    pub(super) fn crew(&self, pod: PodIndex) -> &Crew {
        &self.crews[self.pod(pod).crew as usize]
    }

    pub(super) fn member<'w>(&self, world: &'w World, pod: PodIndex) -> Option<&'w Member> {
        world.workloads.member(self.pod(pod).id)
    }

    /// Pods that a unit takes away.
    pub(super) fn pods_of(&self, unit: Unit) -> std::ops::Range<PodIndex> {
        match unit {
            Unit::Move(pod) | Unit::Evict(pod) => pod..pod + 1,
            Unit::EvictAll(crew) => self.crews[crew as usize].pods.clone(),
        }
    }

    /// What a unit costs by itself.
    pub(super) fn price(&self, unit: Unit) -> Price {
        match unit {
            Unit::Move(pod) => {
                let milli = self.pod(pod).gpu_milli;
                Price { pods: 1, lost: self.lost(pod), milli, ..Price::ZERO }
            }
            Unit::Evict(pod) => {
                let crew = self.crew(pod);
                let (priority, age) = (crew.priority.into(), crew.age());
                let (lost, milli) = (self.lost(pod), self.pod(pod).gpu_milli);
                let highest = Some(crew.priority);
                Price { pods: 1, evicted: 1, highest, lost, priority, milli, age }
            }
            Unit::EvictAll(crew) => {
                let crew = &self.crews[crew as usize];
                let count = i64::from(crew.members);
                let each = crew.pods.clone().map(|pod| self.pod(pod).gpu_milli);
                let milli = crew.all_milli.unwrap_or_else(|| each.sum());
                let lost = milli.saturating_mul(crew.seconds_at_risk);
                let priority = i64::from(crew.priority) * count;
                let age = crew.age() * count;
                let highest = Some(crew.priority);
                Price { pods: count, evicted: count, highest, lost, priority, milli, age }
            }
        }
    }

    /// What units cost together: who loses work loses it once.
    pub(super) fn price_of(&self, units: impl IntoIterator<Item = Unit>) -> Price {
        let mut hit = std::collections::BTreeSet::new();
        let mut sum = Price::ZERO;
        for unit in units {
            let mut price = self.price(unit);
            let crew = match unit {
                Unit::Move(pod) | Unit::Evict(pod) => self.pod(pod).crew,
                Unit::EvictAll(crew) => crew,
            };
            if self.crews[crew as usize].all_milli.is_some() && !hit.insert(crew) {
                price.lost = 0;
            }
            sum = sum.plus(price);
        }
        sum
    }

    fn lost(&self, pod: PodIndex) -> i64 {
        let crew = self.crew(pod);
        let milli = crew.all_milli.unwrap_or(self.pod(pod).gpu_milli);
        milli.saturating_mul(crew.seconds_at_risk)
    }
}

impl Crew {
    /// The newer the less.
    fn age(&self) -> i64 {
        -i64::from(self.id.0)
    }
}

/// Where a member of a workload may be moved to; none: nowhere, as its groups hold it where it is,
/// or as its members are not where they should be, and one alone cannot mend that.
pub(super) fn home(world: &World, workload: &Workload) -> Option<Home> {
    match workload.profile.topology.required {
        _ if workload.bonds.is_fixed => None,
        None | Some(LevelId(0)) => Some(Home::Anywhere),
        Some(level) if workload.member_count() <= 1 => Some(Home::Any(level)),
        Some(level) => common_domain(world, workload, level).map(Home::In),
    }
}

/// The domain of the preferred level in which the members of a gang are, if it is one.
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
