//! Simulation of one domain: remove victims, place members, relocate moved pods, reprieve victims
//! that are not needed.

mod colocate;
mod relocate;
mod reprieve;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::choose_nodes::{self, Choice, MemberDemand};
use super::disruption_cost::DisruptionCost;
use super::domain_assignments;
use super::option_cache::{CandidateState, OptionCache};
use super::victims::{Disruption, PodClass, PodIndex, Taken, VictimPool};
use crate::World;
use crate::node::NodeId;
use crate::placement::Placement;
use crate::plan::{Move, Placed};
use crate::solve::Request;
use crate::solve::attempt::place_on;
use crate::solve::constraints::LimitUsage;
use crate::solve::residual::{AllowedDomain, GroupDemand, is_within};
use crate::topology::{DomainId, LevelId, Topology};
use crate::transaction::Transaction;
use crate::workload::{Member, MemberId};

/// The result of a simulation.
#[derive(Clone, Debug, Default)]
pub(super) struct SimulatedPlan {
    pub(super) disruptions: BTreeSet<Disruption>,
    pub(super) moves: Vec<Move>,
    pub(super) placements: Vec<Placed>,
    pub(super) disruption_cost: DisruptionCost,
}

/// Why the simulation of a domain failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Infeasible {
    /// The members do not fit even without all victims.
    DoesNotFit,
    /// Pods of this class have no target and may not be evicted.
    PodClass(u32),
    /// More moves than are allowed.
    TooManyMoves,
}

/// Inputs that are the same for all domains.
#[derive(Clone, Copy)]
pub(super) struct SearchContext<'a> {
    pub(super) request: &'a Request<'a>,
    pub(super) demands: &'a [GroupDemand],
    /// By group and node: members that fit without all victims.
    pub(super) max_fit: &'a [Vec<u32>],
    pub(super) pool: &'a VictimPool,
    pub(super) classes: &'a [PodClass],
    pub(super) max_moves: u32,
    /// States of nodes that may be looked at.
    pub(super) limit: u64,
}

/// A stage: the world while one domain is tried.
pub(super) struct Simulation<'w, 'a> {
    context: &'a SearchContext<'a>,
    cache: &'a mut OptionCache,
    spent: &'a mut u64,
    txn: Transaction<'w, World>,
    taken: Taken,
    disruptions: BTreeSet<Disruption>,
    placements: Vec<Placed>,
    /// The same, as far as limits count them.
    usage: LimitUsage,
    /// Nodes that were changed, whose signatures must be forgotten.
    touched: BTreeSet<NodeId>,
    targets: BTreeMap<PodIndex, Placement>,
}

/// Members to place together, and their ranks.
struct Chunk {
    ranks: Vec<u32>,
    domain: DomainId,
    /// They must be in one domain of this level.
    level: Option<LevelId>,
    is_unpinned: bool,
}

impl SearchContext<'_> {
    fn nodes(&self, topology: &Topology, domain: DomainId, group: usize) -> Vec<NodeId> {
        let max_fit = &self.max_fit[group];
        let nodes = topology.nodes(domain).iter().copied();
        nodes
            .filter(|node| max_fit.get(node.0 as usize).is_some_and(|max_fit| *max_fit > 0))
            .collect()
    }

    /// Groups, the most demanding members first.
    pub(super) fn order(demands: &[GroupDemand]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..demands.len()).collect();
        order.sort_by_key(|group| {
            let shape = &demands[*group].shape;
            (Reverse((shape.gpus.total_milli(), shape.resources.cpu_milli)), *group)
        });
        order
    }

    /// Members that are to be placed of a group.
    pub(super) fn count(demand: &GroupDemand) -> u32 {
        demand.min_unpinned().saturating_add(demand.segment_members())
    }

    /// Estimated cost of a domain if each of the selected groups chooses freely in its allowed
    /// part. None: it does not fit, or the step limit is reached.
    pub(super) fn estimate(
        &self,
        world: &World,
        cache: &mut OptionCache,
        spent: &mut u64,
        domain: DomainId,
        is_meant: impl Fn(&GroupDemand) -> bool,
    ) -> Option<DisruptionCost> {
        let (pool, limit) = (self.pool, self.limit);
        let taken = Taken::nothing(pool);
        let mut state = CandidateState { world, pool, cache, taken, spent, limit };
        let mut dearest = DisruptionCost::ZERO;
        for (group, demand) in
            self.demands.iter().enumerate().filter(|(_, demand)| is_meant(demand))
        {
            let count = Self::count(demand);
            if count > 0 {
                let area = match demand.allowed {
                    AllowedDomain::Nowhere => return None,
                    AllowedDomain::Within(allowed) => narrower(&world.topology, domain, allowed)?,
                    AllowedDomain::Anywhere => domain,
                };
                let nodes = self.nodes(&world.topology, area, group);
                let (constraints, usage) = (&demand.constraints, &LimitUsage::default());
                let wanted = MemberDemand {
                    group: demand.group,
                    shape: &demand.shape,
                    count,
                    constraints,
                    usage,
                };
                dearest = dearest.max(choose_nodes::choose(&mut state, &nodes, wanted)?.cost);
            }
        }
        Some(dearest)
    }
}

impl<'w, 'a> Simulation<'w, 'a> {
    pub(super) fn new(
        world: &'w mut World,
        context: &'a SearchContext<'a>,
        cache: &'a mut OptionCache,
        spent: &'a mut u64,
    ) -> Self {
        Self {
            context,
            cache,
            spent,
            txn: Transaction::new(world),
            taken: Taken::nothing(context.pool),
            disruptions: BTreeSet::new(),
            placements: Vec::new(),
            usage: LimitUsage::default(),
            touched: BTreeSet::new(),
            targets: BTreeMap::new(),
        }
    }

    /// Simulates a domain. `cost` gets the world without the victims and with moved pods at their
    /// targets, and the members' placements.
    pub(super) fn run<T>(
        mut self,
        domain: DomainId,
        cost: impl FnOnce(&World, &[Placed]) -> T,
    ) -> Result<(SimulatedPlan, T), Infeasible> {
        let outcome = self.simulate_domain(domain).map(|()| {
            self.reprieve();
            let plan = self.plan();
            for placed in &plan.placements {
                let shape = self.shape_of(placed);
                let outcome = self.txn.release(&shape.resources, &placed.placement);
                debug_assert!(outcome.is_ok(), "{outcome:?}");
            }
            let cost = cost(self.txn.target(), &plan.placements);
            (plan, cost)
        });
        for node in std::mem::take(&mut self.touched) {
            self.cache.forget(node);
        }
        outcome
    }

    fn simulate_domain(&mut self, domain: DomainId) -> Result<(), Infeasible> {
        let free = domain_assignments::free_colocations(
            &self.txn.target().topology,
            self.context.demands,
            domain,
        );
        let order = SearchContext::order(self.context.demands);
        let mut backtracks = colocate::MAX_BACKTRACKS;
        self.place_all(&order, &free, domain, &mut backtracks)?;
        self.placements.sort_by_key(|placed| placed.rank);
        self.place_moved()
    }

    fn place_group(
        &mut self,
        group: usize,
        domain: DomainId,
        allowed: AllowedDomain,
    ) -> Result<(), Infeasible> {
        let context = self.context;
        let demand = &context.demands[group];
        if SearchContext::count(demand) == 0 {
            return Ok(());
        }
        let topology = &self.txn.target().topology;
        let area = match allowed {
            AllowedDomain::Nowhere => return Err(Infeasible::DoesNotFit),
            AllowedDomain::Within(allowed) => {
                narrower(topology, domain, allowed).ok_or(Infeasible::DoesNotFit)?
            }
            AllowedDomain::Anywhere => {
                let level = demand.required.filter(|level| *level > topology.domain(domain).level);
                match level {
                    Some(level) => {
                        let count = SearchContext::count(demand);
                        self.best_domain(group, domain, level, count)
                            .ok_or(Infeasible::DoesNotFit)?
                            .0
                    }
                    None => domain,
                }
            }
        };
        let mut unpinned = Vec::new();
        for chunk in self.chunks(demand, area)? {
            let count = u32::try_from(chunk.ranks.len()).unwrap_or(u32::MAX);
            let inner = chunk
                .level
                .filter(|level| *level > self.txn.target().topology.domain(chunk.domain).level);
            let choice = match inner {
                Some(level) => {
                    let best = self.best_domain(group, chunk.domain, level, count);
                    best.ok_or(Infeasible::DoesNotFit)?.1
                }
                None => self.choose(group, chunk.domain, count).ok_or(Infeasible::DoesNotFit)?,
            };
            let places = self.apply(group, choice)?;
            if chunk.is_unpinned {
                unpinned.push((chunk.ranks, places));
            } else {
                self.rank(group, &chunk.ranks, places);
            }
        }
        // Segments follow one another as their domains do.
        let mut ranks: Vec<Vec<u32>> = unpinned.iter().map(|(ranks, _)| ranks.clone()).collect();
        ranks.sort();
        let mut places: Vec<Vec<Placement>> =
            unpinned.into_iter().map(|(_, places)| places).collect();
        let topology = &self.txn.target().topology;
        places.sort_by_key(|places| places.iter().map(|place| topology.position(place.node)).min());
        for (ranks, places) in ranks.into_iter().zip(places) {
            self.rank(group, &ranks, places);
        }
        Ok(())
    }

    fn chunks(&self, demand: &GroupDemand, area: DomainId) -> Result<Vec<Chunk>, Infeasible> {
        let topology = &self.txn.target().topology;
        let mut chunks = Vec::new();
        for run in &demand.pinned_segments {
            let domain = run.domain.and_then(|domain| narrower(topology, area, domain));
            let domain = domain.ok_or(Infeasible::DoesNotFit)?;
            chunks.push(Chunk {
                ranks: run.ranks.clone(),
                domain,
                level: None,
                is_unpinned: false,
            });
        }
        let unpinned = &demand.ranks[..demand.min_unpinned() as usize];
        let (size, level) = match demand.segment {
            Some(segment) => (segment.size as usize, Some(segment.level)),
            None => (unpinned.len().max(1), None),
        };
        for ranks in unpinned.chunks(size) {
            chunks.push(Chunk { ranks: ranks.to_vec(), domain: area, level, is_unpinned: true });
        }
        Ok(chunks)
    }

    /// The inner domain of a level in which the members are cheapest.
    fn best_domain(
        &mut self,
        group: usize,
        within: DomainId,
        level: LevelId,
        count: u32,
    ) -> Option<(DomainId, Choice)> {
        let topology = &self.txn.target().topology;
        let max_fit = &self.context.max_fit[group];
        let inside = topology.at(level).map(|(id, _)| id).filter(|id| {
            let nodes = topology.nodes(*id).iter();
            let most = nodes
                .filter_map(|node| max_fit.get(node.0 as usize))
                .map(|count| u64::from(*count))
                .sum::<u64>();
            most >= u64::from(count) && is_within(topology, *id, within)
        });
        let inside: Vec<DomainId> = inside.collect();
        let mut best: Option<(DomainId, Choice)> = None;
        for domain in inside {
            let Some(choice) = self.choose(group, domain, count) else { continue };
            if best.as_ref().is_none_or(|(_, best)| choice.cost < best.cost) {
                best = Some((domain, choice));
            }
        }
        best
    }

    fn choose(&mut self, group: usize, domain: DomainId, count: u32) -> Option<Choice> {
        let demand = &self.context.demands[group];
        let world = self.txn.target();
        let nodes = self.context.nodes(&world.topology, domain, group);
        let taken = std::mem::take(&mut self.taken);
        let (pool, limit) = (self.context.pool, self.context.limit);
        let (cache, spent) = (&mut *self.cache, &mut *self.spent);
        let mut state = CandidateState { world, pool, cache, taken, spent, limit };
        let (constraints, usage) = (&demand.constraints, &self.usage);
        let wanted =
            MemberDemand { group: demand.group, shape: &demand.shape, count, constraints, usage };
        let choice = choose_nodes::choose(&mut state, &nodes, wanted);
        self.taken = state.taken;
        choice
    }

    /// Victims go, members come.
    fn apply(&mut self, group: usize, choice: Choice) -> Result<Vec<Placement>, Infeasible> {
        for disruption in choice.disruptions {
            self.take_off(disruption)?;
        }
        let demand = &self.context.demands[group];
        let shape = &demand.shape;
        let mut assigned = choice.assigned;
        let topology = &self.txn.target().topology;
        assigned.sort_by_key(|(node, _)| topology.position(*node));
        let mut places = Vec::new();
        for (node, count) in assigned {
            // As in the search without victims: the default choice, else the densest one.
            let mut txn = Transaction::new(&mut self.txn.target_mut().cluster);
            let found = place_on(&mut txn, node, demand, count);
            drop(txn);
            for place in found.ok_or(Infeasible::DoesNotFit)? {
                let placed = self.txn.place(&shape.resources, &place);
                placed.map_err(|_| Infeasible::DoesNotFit)?;
                places.push(place);
            }
            self.usage.add(demand.constraints.limits(), node, count);
            self.touch(node);
        }
        Ok(places)
    }

    fn rank(&mut self, group: usize, ranks: &[u32], places: Vec<Placement>) {
        let group = self.context.demands[group].group;
        let placed = ranks.iter().zip(places);
        let placed = placed.map(|(rank, placement)| Placed { group, rank: *rank, placement });
        self.placements.extend(placed);
    }

    fn take_off(&mut self, disruption: Disruption) -> Result<(), Infeasible> {
        if !self.disruptions.insert(disruption) {
            return Ok(());
        }
        let pool = self.context.pool;
        for pod in pool.pods_of(disruption) {
            if std::mem::replace(&mut self.taken.gone[pod as usize], true) {
                continue;
            }
            if pool.pod(pod).limit.is_some_and(|limit| self.taken.left(pool, limit) == 0) {
                return Err(Infeasible::DoesNotFit);
            }
            self.taken.take(pool, pod, matches!(disruption, Disruption::Move(_)));
            let member = pool.member(self.txn.target(), pod).cloned();
            let member = member.ok_or(Infeasible::DoesNotFit)?;
            self.txn.release_member(&member).map_err(|_| Infeasible::DoesNotFit)?;
            self.touch(member.placement.node);
        }
        // A workload that is evicted whole has no single moves or evictions beside that.
        if let Disruption::EvictAll(workload) = disruption {
            self.disruptions.retain(|other| match other {
                Disruption::Move(pod) | Disruption::Evict(pod) => {
                    pool.pod(*pod).workload != workload
                }
                Disruption::EvictAll(_) => true,
            });
            self.targets.retain(|pod, _| pool.pod(*pod).workload != workload);
        }
        self.touch_workload(disruption);
        Ok(())
    }

    /// The remaining pods of a workload may now have another cost, on every node.
    fn touch_workload(&mut self, disruption: Disruption) {
        let Disruption::Evict(pod) = disruption else { return };
        let pool = self.context.pool;
        for pod in pool.workload(pod).pods.clone() {
            let member = pool.member(self.txn.target(), pod);
            if let Some(node) = member.map(|member| member.placement.node) {
                self.touch(node);
            }
        }
    }

    fn touch(&mut self, node: NodeId) {
        self.touched.insert(node);
        self.cache.forget(node);
    }

    fn plan(&self) -> SimulatedPlan {
        let pool = self.context.pool;
        let mut moved: Vec<_> = self.targets.iter().collect();
        moved.sort_by_key(|(pod, place)| {
            let milli = pool.member(self.txn.target(), **pod).map(Member::gpu_milli);
            (Reverse(milli), place.node, **pod)
        });
        let moves = moved.into_iter();
        let moves = moves.map(|(pod, to)| Move { member: pool.pod(*pod).id, to: to.clone() });
        SimulatedPlan {
            disruptions: self.disruptions.clone(),
            moves: moves.collect(),
            placements: self.placements.clone(),
            disruption_cost: pool.total_cost(self.disruptions.iter().copied()),
        }
    }

    fn shape_of(&self, placed: &Placed) -> std::sync::Arc<crate::shape::Shape> {
        let group = &self.context.request.gang.groups[placed.group as usize];
        std::sync::Arc::clone(&group.shape)
    }
}

impl SimulatedPlan {
    /// The evicted members: the cheapest first, gangs contiguous.
    pub(super) fn evictions(&self, pool: &VictimPool) -> Vec<MemberId> {
        let mut disruptions: Vec<Disruption> = self.disruptions.iter().copied().collect();
        disruptions.retain(|disruption| !matches!(disruption, Disruption::Move(_)));
        disruptions.sort_by_key(|disruption| (pool.cost(*disruption), *disruption));
        disruptions
            .into_iter()
            .flat_map(|disruption| pool.pods_of(disruption))
            .map(|pod| pool.pod(pod).id)
            .collect()
    }
}

/// The inner of two nested domains.
fn narrower(topology: &Topology, a: DomainId, b: DomainId) -> Option<DomainId> {
    if is_within(topology, a, b) {
        Some(a)
    } else if is_within(topology, b, a) {
        Some(b)
    } else {
        None
    }
}
