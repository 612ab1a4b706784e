//! Whether a policy makes sense in a cluster.

use octavo_health::risk::Rate;
use octavo_health::spares::needed;

use super::{PlacementPolicy, PolicyError, SpareCount, Spares};
use crate::World;
use crate::objective::energy;
use crate::topology::{DomainId, LevelId, Topology};
use crate::workload::Profile;

impl PlacementPolicy {
    /// Checks the policy against a cluster: the limits can be kept, and the levels exist. This is
    /// for the time of writing a policy. Nodes come and go later, and then limits apply as far as
    /// possible.
    pub fn check(&self, world: &World) -> Result<(), PolicyError> {
        let idle = energy::idle_watts(&world.cluster);
        if let Some(most) = self.constraints().max_watts.filter(|most| *most < idle) {
            return Err(PolicyError::BelowIdle { field: "constraints.maxWatts", most, idle });
        }
        for (number, spares) in self.constraints().spares.iter().enumerate() {
            let field = format!("constraints.spares[{number}]");
            let level = spares.resolve(world, &field)?;
            let gpu_nodes = |id: DomainId| {
                let nodes = world.topology.nodes(id).iter();
                let count = nodes.filter(|node| world.cluster.class(**node).gpus > 0).count();
                i64::try_from(count).unwrap_or(i64::MAX)
            };
            let domains = world.topology.at(level).map(|(id, _)| (gpu_nodes(id), id));
            let wanted = |id| spares.wanted(world, id);
            // A domain without GPUs has no spare nodes and takes no GPU pods either.
            let smallest = domains.filter(|(have, _)| *have > 0 || level.0 == 0).min();
            if let Some((have, id)) = smallest.filter(|(have, id)| *have < wanted(*id)) {
                return Err(PolicyError::TooManySpares {
                    field: format!("{field}.nodes"),
                    wanted: wanted(id),
                    domain: domain_words(&world.topology, id),
                    have,
                });
            }
        }
        Ok(())
    }
}

/// A domain as text: `the cluster`, or its level and path, such as `rack b1/r2`.
pub(in crate::policy::objective) fn domain_words(topology: &Topology, id: DomainId) -> String {
    let level = usize::from(topology.domain(id).level.0);
    match topology.levels().get(level) {
        Some(name) if level > 0 => format!("{name} {}", topology.path(id)),
        _ => format!("the {}", topology.path(id)),
    }
}

impl Spares {
    /// How many nodes of a domain are to be left free.
    pub(in crate::policy::objective) fn wanted(&self, world: &World, domain: DomainId) -> i64 {
        if let SpareCount::Nodes(nodes) = self.nodes {
            return nodes;
        }
        let World { cluster, topology, .. } = world;
        let nodes = topology.nodes(domain).iter().filter(|node| cluster.class(**node).gpus > 0);
        let (mut count, mut rates) = (0_u32, 0_u64);
        for node in nodes {
            count += 1;
            let of_node = cluster.gpus(*node).iter().map(|gpu| gpu.risk.rate(Rate::GPU).0);
            rates = rates.saturating_add(of_node.sum());
        }
        let mean = Rate(rates.checked_div(count.into()).unwrap_or(0));
        needed(count, mean, self.refill_seconds.unwrap_or(octavo_health::DAY)).into()
    }

    /// Whether a workload may use the nodes while they are spare.
    pub(in crate::policy::objective) fn may_borrow(&self, profile: &Profile) -> bool {
        let is_below = |below| profile.priority < below;
        profile.is_preemptible && self.lend_below_priority.is_some_and(is_below)
    }

    /// Its level in a topology; `field` is its path in the policy.
    pub(in crate::policy::objective) fn resolve(
        &self,
        world: &World,
        field: &str,
    ) -> Result<LevelId, PolicyError> {
        let Some(name) = &self.level else { return Ok(LevelId(0)) };
        world.topology.level_named(name).ok_or_else(|| PolicyError::UnknownLevel {
            field: format!("{field}.level"),
            found: name.clone(),
            known: world.topology.levels().join(", "),
        })
    }
}
