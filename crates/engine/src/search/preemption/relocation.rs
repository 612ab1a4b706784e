//! The target of a moved pod: the fullest node that it fits.

use std::collections::BTreeSet;

use super::victims::{PodClass, RelocationScope, VictimPool};
use crate::World;
use crate::cluster::states::NodeState;
use crate::fit;
use crate::node::NodeId;
use crate::pick;
use crate::placement::Placement;
use crate::shape::Shape;
use crate::solve::Request;
use crate::solve::residual::contains;
use crate::topology::{DomainId, Topology};

/// A placement for a pod on the fullest node that it fits. Fullest means the least free GPU
/// compute, then the least free CPU; ties go to the lower node. Nodes in the domain `near` come
/// first.
pub(super) fn find(
    world: &World,
    shape: &Shape,
    scope: RelocationScope,
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
                    && is_in_scope(topology, scope, *node)
                    && is_allowed(*node)
            })
        };
        fitting().filter_map(|(_, state, nodes)| Some((left(state), first(nodes)?))).min()
    };
    let (_, node) = near.and_then(|near| best(Some(near))).or_else(|| best(None))?;
    pick::default_placement(&world.cluster, node, shape)
}

/// Whether a pod with this scope may be moved to a node.
pub(super) fn is_in_scope(topology: &Topology, scope: RelocationScope, node: NodeId) -> bool {
    match scope {
        RelocationScope::Anywhere => true,
        RelocationScope::In(domain) => contains(topology, domain, node),
        RelocationScope::Any(level) => topology.domain_of(node, level).is_some(),
    }
}

fn left(state: &NodeState) -> (i64, i64) {
    let milli = state.gpus.iter().map(|gpu| i64::from(gpu.open_milli())).sum();
    (milli, state.free.cpu_milli)
}

/// Whether pods of a class could be moved anywhere now.
pub(super) fn can_move(
    world: &World,
    request: &Request<'_>,
    pool: &VictimPool,
    number: u32,
    class: &PodClass,
) -> bool {
    let is_wanted = pool
        .pods
        .iter()
        .any(|pod| pod.class == number && pool.workloads[pod.workload as usize].may_move);
    is_wanted
        && world.cluster.states().iter().any(|(_, state, nodes)| {
            fit::fits(&world.cluster, state, &class.shape)
                && nodes.iter().any(|node| {
                    !request.forbidden.contains(node)
                        && is_in_scope(&world.topology, class.scope, *node)
                })
        })
}
