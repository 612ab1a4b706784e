//! Spare nodes: the nodes that a policy keeps free.
//!
//! No bound tells which nodes stay free. If a plan would take too many, the search is repeated with
//! some spare nodes forbidden. In each domain these are as many as the policy wants, the last ones
//! by id. Any plan found then leaves them free. Finding none then is no proof.

use super::is_spare;
use crate::World;
use crate::node::NodeSet;
use crate::objective::policy::PlacementPolicy;

/// Spare nodes that a policy keeps free.
pub(super) fn kept(world: &World, policy: &PlacementPolicy) -> NodeSet {
    let World { cluster, topology, .. } = world;
    let mut kept = NodeSet::new();
    for spares in &policy.constraints().spares {
        let level = spares.level.as_deref().unwrap_or("cluster");
        let Some(level) = topology.level_named(level) else { continue };
        for (id, _) in topology.at(level) {
            let is_free = |node: &crate::NodeId| {
                let state = cluster.states().state(cluster.state(*node));
                state.is_some_and(|state| is_spare(cluster, state))
            };
            let mut free: Vec<_> = topology.nodes(id).iter().copied().filter(is_free).collect();
            free.sort_unstable();
            // Nodes kept for a tighter level count for the looser ones too.
            let has = free.iter().filter(|node| kept.contains(*node)).count();
            let wanted = usize::try_from(spares.nodes).unwrap_or(usize::MAX).saturating_sub(has);
            free.retain(|node| !kept.contains(node));
            kept.extend(free.into_iter().rev().take(wanted));
        }
    }
    kept
}
