//! The cost model of a placement policy.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::spare_nodes::{self, SpareNodes};
use super::{Change, cents, expected_loss, gpu_risk, preferences_missed};
use crate::World;
use crate::cluster::Cluster;
use crate::cluster::states::NodeState;
use crate::fragmentation::{NodeResidual, TypicalPods};
use crate::gang::Gang;
use crate::node::{NodeId, NodeSet};
use crate::objective::fairness::FairShares;
use crate::objective::policy::{PlacementPolicy, PolicyError};
use crate::objective::{CostModel, CostTerm, CostVector, energy};
use crate::placement::Placement;
use crate::plan::{DisruptionSet, Move, Placed, Reason};
use crate::resources::Resources;
use crate::topology::ring_hops;
use crate::workload::{MemberId, Profile, Workload, WorkloadId};

/// Cost model of a policy for a world as it is now. It is valid for one decision, or for several
/// between which nothing changes.
#[derive(Clone)]
pub struct PolicyCostModel<'a> {
    policy: &'a PlacementPolicy,
    typical: &'a TypicalPods,
    shares: &'a FairShares,
    /// Power and spend of the whole cluster; 0 where the policy does not limit them.
    watts: i64,
    cents: i64,
    spares: SpareNodes<'a>,
}

impl<'a> PolicyCostModel<'a> {
    /// A cost model. Fragmentation is measured by `typical`; without typical pods it costs nothing.
    /// Fails if a level with spare nodes is not in the topology.
    pub fn new(
        world: &World,
        policy: &'a PlacementPolicy,
        typical: &'a TypicalPods,
        shares: &'a FairShares,
    ) -> Result<Self, PolicyError> {
        let spares = SpareNodes::of(world, policy)?;
        let mut model = Self { policy, typical, shares, watts: 0, cents: 0, spares };
        if policy.has_limits() {
            model.measure(world);
        }
        Ok(model)
    }

    /// Sums what the policy limits over the whole cluster.
    fn measure(&mut self, world: &World) {
        let cluster = &world.cluster;
        for (_, state, nodes) in cluster.states().iter() {
            let count = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
            self.watts += energy::watts(cluster, state) * count;
            self.cents += cents(cluster, state) * count;
        }
    }

    /// The cost of a node's transition between two states.
    fn node_cost(&self, cluster: &Cluster, before: &NodeState, after: &NodeState) -> CostVector {
        let mut cost = CostVector::default();
        let amounts = |state| self.typical.amounts(&NodeResidual::of_state(cluster, state));
        let stranded = amounts(after).minus(&amounts(before)).rounded_fragment();
        cost.set(CostTerm::GpuMilliStranded, stranded);
        // Stranded GPUs in millionths: the packing policy's own price is of single pods.
        cost.set(CostTerm::PackingPrice, stranded.saturating_mul(1000));
        let watts = energy::watts(cluster, after) - energy::watts(cluster, before);
        cost.set(CostTerm::Watts, watts);
        cost.set(CostTerm::CentsPerHour, cents(cluster, after) - cents(cluster, before));
        cost
    }

    /// Whether the limits of the policy allow a cost. Limits apply only to changes for the worse.
    pub(super) fn check_limits(&self, cost: &CostVector) -> Result<(), Reason> {
        let constraints = self.policy.constraints();
        let most_disturbed = match constraints.max_pods_disturbed {
            _ if !self.policy.is_preempting() => Some(0),
            most => most,
        };
        let limits = [
            ("pods disturbed", CostTerm::PodsDisturbed, most_disturbed, 0),
            ("watts", CostTerm::Watts, constraints.max_watts, self.watts),
            ("cents per hour", CostTerm::CentsPerHour, constraints.max_cents_per_hour, self.cents),
        ];
        for (name, unit, most, now) in limits {
            let found = now.saturating_add(cost.of(unit));
            if let Some(most) = most
                && cost.of(unit) > 0
                && found > most
            {
                return Err(Reason::Constraint { unit: name, most, found });
            }
        }
        Ok(())
    }
}

impl CostModel for PolicyCostModel<'_> {
    fn cost(
        &self,
        world: &World,
        gang: &Gang,
        placed: &[Placed],
        disruptions: DisruptionSet<'_>,
    ) -> CostVector {
        let World { cluster, topology, workloads } = world;
        let mut milli = 0;
        for member in placed {
            milli += member.placement.gpus.iter().map(|part| i64::from(part.milli)).sum::<i64>();
        }
        let mut cost = CostVector::default();
        let placements = || placed.iter().map(|placed| &placed.placement);
        let nodes = || placements().map(|placement| placement.node);
        cost.set(
            CostTerm::Hops,
            ring_hops(topology, nodes()) + moved_hops(world, disruptions.moves),
        );
        cost.set(CostTerm::PreferencesMissed, preferences_missed(gang, placed));
        let risk = gpu_risk(cluster, placements()) + moved_risk(world, disruptions.moves);
        cost.set(CostTerm::GpuRisk, risk);
        let disturbed = disruptions.moves.len() + disruptions.evictions.len();
        cost.set(CostTerm::PodsDisturbed, i64::try_from(disturbed).unwrap_or(i64::MAX));
        for (_, before, after) in change(world, gang, placed, disruptions).states(cluster) {
            cost = cost.plus(&self.node_cost(cluster, before, &after));
        }
        let losses = disruptions.evictions.iter().filter_map(|id| {
            let tenant = &*workloads.workload(id.workload)?.profile.tenant;
            Some((tenant, -workloads.member(*id)?.gpu_milli()))
        });
        let gain = (&*gang.profile.tenant, milli);
        let deficit = self.shares.deficit_after(losses.chain([gain]));
        cost.set(CostTerm::FairnessDeficit, deficit);
        let loss = loss(world, &gang.profile, placements(), milli);
        cost.set(CostTerm::ExpectedLostGpuSeconds, loss);
        cost
    }

    fn has_limits(&self) -> bool {
        self.policy.has_limits()
    }

    fn kept_free(&self, world: &World) -> NodeSet {
        spare_nodes::kept(world, self.policy)
    }

    fn compare(&self, a: &CostVector, b: &CostVector) -> Ordering {
        self.policy.compare(a, b)
    }

    fn worse_in(&self, taken: &CostVector, other: &CostVector) -> Option<CostTerm> {
        self.policy.worse_in(taken, other)
    }

    fn check(
        &self,
        world: &World,
        gang: &Gang,
        placed: &[Placed],
        disruptions: DisruptionSet<'_>,
        cost: &CostVector,
    ) -> Result<(), Reason> {
        self.check_limits(cost)?;
        if self.spares.is_empty() {
            return Ok(());
        }
        let cluster = &world.cluster;
        let change = change(world, gang, placed, disruptions);
        let taken: NodeSet = placed
            .iter()
            .map(|placed| &placed.placement)
            .chain(disruptions.moves.iter().map(|step| &step.to))
            .filter(|placement| !placement.gpus.is_empty())
            .map(|placement| placement.node)
            .collect();
        let states = change.states(cluster);
        let changed =
            states.map(|(node, before, after)| (node, before, after, taken.contains(&node)));
        self.spares.check(world, &gang.profile, &changed.collect::<Vec<_>>())
    }
}

/// Expected loss in GPU-seconds per hour for the placed members. Running members are lost together
/// with them.
fn loss<'a>(
    world: &World,
    profile: &Profile,
    placements: impl Iterator<Item = &'a Placement> + Clone,
    milli: i64,
) -> i64 {
    if profile.seconds_at_risk == 0 {
        return 0;
    }
    let running = world.workloads.named(&profile.name);
    let running = running.and_then(|id| world.workloads.workload(id));
    let all = milli + running.map_or(0, Workload::gpu_milli);
    expected_loss(&world.cluster, placements, all, profile.seconds_at_risk)
}

/// The effect of a decision on the nodes.
fn change(world: &World, gang: &Gang, placed: &[Placed], disruptions: DisruptionSet<'_>) -> Change {
    let World { cluster, workloads, .. } = world;
    let mut change = Change::default();
    for id in disruptions.evictions {
        if let Some(member) = workloads.member(*id) {
            change.release(cluster, &member.shape.resources, &member.placement);
        }
    }
    let moves =
        disruptions.moves.iter().filter_map(|step| Some((step, workloads.member(step.member)?)));
    for (_, member) in moves.clone() {
        change.release(cluster, &member.shape.resources, &member.placement);
    }
    for (step, member) in moves {
        change.place(cluster, &member.shape.resources, &step.to);
    }
    for member in placed {
        let shape = gang.groups.get(member.group as usize).map(|group| &group.shape);
        let requests = shape.map_or_else(Resources::default, |shape| shape.resources);
        change.place(cluster, &requests, &member.placement);
    }
    change
}

/// How much riskier the GPUs of moved members are than those that they leave.
fn moved_risk(world: &World, moves: &[Move]) -> i64 {
    let World { cluster, workloads, .. } = world;
    let of = |placement| gpu_risk(cluster, [placement]);
    let left = moves.iter().filter_map(|step| Some(of(&workloads.member(step.member)?.placement)));
    moves.iter().map(|step| of(&step.to)).sum::<i64>() - left.sum::<i64>()
}

/// How many more hops the rings of moved workloads have.
fn moved_hops(world: &World, moves: &[Move]) -> i64 {
    let ids: BTreeSet<WorkloadId> = moves.iter().map(|step| step.member.workload).collect();
    let to: BTreeMap<MemberId, NodeId> =
        moves.iter().map(|step| (step.member, step.to.node)).collect();
    let mut more = 0;
    for id in ids {
        let Some(workload) = world.workloads.workload(id) else { continue };
        let members = (0..).zip(&workload.members).filter_map(|(number, member)| {
            let member_id = MemberId { workload: id, member: number };
            Some((member_id, member.as_ref()?.placement.node))
        });
        let after = members.clone().map(|(id, node)| to.get(&id).copied().unwrap_or(node));
        more += ring_hops(&world.topology, after);
        more -= ring_hops(&world.topology, members.map(|(_, node)| node));
    }
    more
}
