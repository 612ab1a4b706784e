//! Targets for moved pods.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::super::relocation;
use super::super::victims::{Disruption, PodIndex};
use super::{Infeasible, Simulation};
use crate::node::NodeId;
use crate::placement::Placement;
use crate::workload::Member;

impl Simulation<'_, '_> {
    /// Places moved pods, the largest first, on the fullest nodes without moved pods. Each target
    /// is therefore free in any order of moves.
    pub(super) fn place_moved(&mut self) -> Result<(), Infeasible> {
        let pool = self.context.pool;
        let mut moved: Vec<(PodIndex, Member)> = Vec::new();
        for disruption in &self.disruptions {
            if let Disruption::Move(pod) = disruption
                && let Some(member) = pool.member(self.txn.target(), *pod)
            {
                moved.push((*pod, member.clone()));
            }
        }
        moved.sort_by_key(|(pod, member)| {
            let cpu = member.shape.resources.cpu_milli;
            (Reverse((member.gpu_milli(), member.shape.gpus.count(), cpu)), *pod)
        });
        let sources: BTreeSet<NodeId> = moved.iter().map(|(_, pod)| pod.placement.node).collect();
        let mut left = self.context.max_moves;
        for (pod, member) in moved {
            if !self.disruptions.contains(&Disruption::Move(pod)) {
                continue;
            }
            let place = if left > 0 { self.place_for(pod, &member, &sources) } else { None };
            if let Some(place) = place {
                let placed = self.txn.place(&member.shape.resources, &place);
                placed.map_err(|_| Infeasible::DoesNotFit)?;
                self.touch(place.node);
                self.targets.insert(pod, place);
                left -= 1;
            } else {
                let reason = if left == 0 { Infeasible::TooManyMoves } else { self.immovable(pod) };
                self.evict_instead(pod).ok_or(reason)?;
            }
        }
        Ok(())
    }

    fn immovable(&self, pod: PodIndex) -> Infeasible {
        Infeasible::PodClass(self.context.pool.pod(pod).class)
    }

    /// Evicts a pod that cannot be moved, if that is allowed and affects no other pod.
    fn evict_instead(&mut self, pod: PodIndex) -> Option<()> {
        let pool = self.context.pool;
        let (workload, number) = (pool.workload(pod), pool.pod(pod).workload);
        let lost = &mut self.taken.lost[number as usize];
        if !workload.may_evict || workload.slack <= *lost {
            return None;
        }
        *lost += 1;
        self.disruptions.remove(&Disruption::Move(pod));
        self.disruptions.insert(Disruption::Evict(pod));
        Some(())
    }

    fn place_for(
        &mut self,
        pod: PodIndex,
        member: &Member,
        sources: &BTreeSet<NodeId>,
    ) -> Option<Placement> {
        let workload = self.context.pool.workload(pod);
        let world = self.txn.target();
        *self.spent += world.cluster.states().iter().count() as u64;
        let forbidden = self.context.request.forbidden;
        let is_allowed = |node| !sources.contains(&node) && !forbidden.contains(&node);
        relocation::find(world, &member.shape, workload.scope, workload.near, &is_allowed)
    }
}
