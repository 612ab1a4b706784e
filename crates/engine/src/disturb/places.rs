//! Where a pod goes that is moved: to the fullest node that it fits.

use std::collections::BTreeSet;

use super::who::{self, Home};
use crate::World;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::node::NodeId;
use crate::pick;
use crate::placement::Placement;
use crate::shape::Shape;
use crate::solve::need::contains;
use crate::topology::{DomainId, Topology};
use crate::workload::MemberId;

/// A place for a running member elsewhere than on `not_on`; none: there is none, or it may not be
/// moved at all because of what its workload requires.
pub(crate) fn for_moved(
    world: &World,
    id: MemberId,
    not_on: &BTreeSet<NodeId>,
) -> Option<Placement> {
    let workload = world.workloads.workload(id.workload)?;
    let shape = &world.workloads.member(id)?.shape;
    let (home, near) = (who::home(world, workload)?, who::near(world, workload));
    find(world, shape, home, near, &|node| !not_on.contains(&node))
}

/// A place for a pod on the fullest node that it fits: with the least compute of GPUs left, then the
/// least CPU, then the lowest. In the domain `near` if there is one with room.
pub(super) fn find(
    world: &World,
    shape: &Shape,
    home: Home,
    near: Option<DomainId>,
    is_allowed: &dyn Fn(NodeId) -> bool,
) -> Option<Placement> {
    let topology = &world.topology;
    let fitting = || {
        let states = world.cluster.states().iter();
        states.filter(|(_, state, _)| fit::fits(&world.cluster, state, shape))
    };
    let best = |near: Option<DomainId>| {
        let first = |nodes: &BTreeSet<NodeId>| {
            nodes.iter().copied().find(|node| {
                near.is_none_or(|domain| contains(topology, domain, *node))
                    && is_at_home(topology, home, *node)
                    && is_allowed(*node)
            })
        };
        fitting().filter_map(|(_, state, nodes)| Some((left(state), first(nodes)?))).min()
    };
    let (_, node) = near.and_then(|near| best(Some(near))).or_else(|| best(None))?;
    pick::any(&world.cluster, node, shape)
}

/// Whether a pod with this home may be moved to a node.
pub(super) fn is_at_home(topology: &Topology, home: Home, node: NodeId) -> bool {
    match home {
        Home::Anywhere => true,
        Home::In(domain) => contains(topology, domain, node),
        Home::Any(level) => topology.domain_of(node, level).is_some(),
    }
}

fn left(state: &NodeState) -> (i64, i64) {
    let milli = state.gpus.iter().map(|gpu| i64::from(gpu.open_milli())).sum();
    (milli, state.free.cpu_milli)
}
