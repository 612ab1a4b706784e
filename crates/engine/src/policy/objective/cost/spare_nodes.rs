//! Spare nodes: the nodes that a policy keeps free.
//!
//! A spare node may be lent to workloads that can be evicted. It counts as spare as long as no
//! others use its GPUs, and such a workload takes none.
//!
//! No bound tells which nodes stay free. If a plan would take too many, the search is repeated with
//! some spare nodes forbidden. In each domain these are as many as the policy wants, the last ones
//! by id. Any plan found then leaves them free. Finding none then is no proof.

use std::collections::BTreeMap;

use super::is_spare;
use crate::World;
use crate::cluster::states::NodeState;
use crate::node::{NodeId, NodeSet};
use crate::objective::policy::{PlacementPolicy, PolicyError, Spares, domain_words};
use crate::plan::Reason;
use crate::topology::{DomainId, LevelId};
use crate::workload::Profile;

/// The spare nodes that a policy wants, and those that there are.
#[derive(Clone)]
pub(super) struct SpareNodes<'a>(Vec<Entry<'a>>);

/// Those of one entry of the policy.
#[derive(Clone)]
struct Entry<'a> {
    spares: &'a Spares,
    level: LevelId,
    /// By domain of the level: how many are wanted, and how many there are.
    domains: BTreeMap<DomainId, (i64, i64)>,
}

/// A node that a decision changes: its state before and after, and whether it takes GPUs there.
pub(super) type Changed<'a> = (NodeId, &'a NodeState, NodeState, bool);

impl<'a> SpareNodes<'a> {
    /// The spare nodes of a world. Fails if a level is not in its topology.
    pub(super) fn of(world: &World, policy: &'a PlacementPolicy) -> Result<Self, PolicyError> {
        let entry = |(number, spares): (usize, &'a Spares)| {
            let level = spares.resolve(world, &format!("constraints.spares[{number}]"))?;
            let count = |id| {
                let nodes = world.topology.nodes(id).iter();
                let spare = nodes.filter(|node| is_spare_for(world, spares, **node)).count();
                i64::try_from(spare).unwrap_or(i64::MAX)
            };
            let domains = world.topology.at(level);
            let domains = domains.map(|(id, _)| (id, (spares.wanted(world, id), count(id))));
            Ok(Entry { spares, level, domains: domains.collect() })
        };
        let entries = policy.constraints().spares.iter().enumerate().map(entry);
        entries.collect::<Result<_, _>>().map(Self)
    }

    /// Whether none are wanted.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether enough spare nodes remain after a decision on a workload. Limits apply only to changes
    /// for the worse.
    pub(super) fn check(
        &self,
        world: &World,
        profile: &Profile,
        changed: &[Changed<'_>],
    ) -> Result<(), Reason> {
        let topology = &world.topology;
        for entry in self.0.iter().filter(|entry| !entry.spares.may_borrow(profile)) {
            let mut more: BTreeMap<DomainId, i64> = BTreeMap::new();
            for (node, before, after, takes_gpus) in changed {
                let cluster = &world.cluster;
                let was = is_spare(cluster, before) || is_lent(world, entry.spares, *node);
                let is = is_spare(cluster, after) || (was && !takes_gpus);
                let mut domains = topology.ancestors(topology.leaf_domain(*node));
                let domain = domains.find(|id| topology.domain(*id).level == entry.level);
                if let Some(domain) = domain {
                    *more.entry(domain).or_default() += i64::from(is) - i64::from(was);
                }
            }
            for (id, more) in more {
                let (least, present) = entry.domains.get(&id).copied().unwrap_or_default();
                let found = present + more;
                if more < 0 && found < least {
                    let domain = domain_words(topology, id);
                    return Err(Reason::Spares { domain, least, found });
                }
            }
        }
        Ok(())
    }
}

/// Spare nodes that a policy keeps free.
pub(super) fn kept(world: &World, policy: &PlacementPolicy) -> NodeSet {
    let topology = &world.topology;
    let mut kept = NodeSet::new();
    for spares in &policy.constraints().spares {
        let level = spares.level.as_deref().unwrap_or("cluster");
        let Some(level) = topology.level_named(level) else { continue };
        for (id, _) in topology.at(level) {
            let is_free = |node: &NodeId| is_spare_for(world, spares, *node);
            let mut free: Vec<_> = topology.nodes(id).iter().copied().filter(is_free).collect();
            free.sort_unstable();
            // Nodes kept for a tighter level count for the looser ones too.
            let has = free.iter().filter(|node| kept.contains(*node)).count();
            let wanted = spares.wanted(world, id);
            let wanted = usize::try_from(wanted).unwrap_or(usize::MAX).saturating_sub(has);
            free.retain(|node| !kept.contains(node));
            // Lent ones first: no plan without victims takes them.
            free.sort_by_key(|node| is_lent(world, spares, *node));
            kept.extend(free.into_iter().rev().take(wanted));
        }
    }
    kept
}

/// Whether a node is spare, or lent.
fn is_spare_for(world: &World, spares: &Spares, node: NodeId) -> bool {
    let cluster = &world.cluster;
    let state = cluster.states().state(cluster.state(node));
    state.is_some_and(|state| is_spare(cluster, state)) || is_lent(world, spares, node)
}

/// Whether a node is lent: it would be spare if the workloads that may use it left.
fn is_lent(world: &World, spares: &Spares, node: NodeId) -> bool {
    let World { cluster, workloads, .. } = world;
    let gpus = cluster.gpus(node);
    if spares.lend_below_priority.is_none() || !cluster.is_open(node) || gpus.is_empty() {
        return false;
    }
    let mut users = workloads
        .on(node)
        .filter(|id| workloads.member(*id).is_some_and(|member| !member.placement.gpus.is_empty()))
        .peekable();
    let may_borrow = |id: crate::workload::MemberId| {
        let workload = workloads.workload(id.workload);
        workload.is_some_and(|workload| spares.may_borrow(&workload.profile))
    };
    users.peek().is_some() && gpus.iter().all(|gpu| !gpu.is_closed) && users.all(may_borrow)
}
