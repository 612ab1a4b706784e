//! What is made good again: moved pods get a new place, and who was not needed stays.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::super::places;
use super::super::who::{PodIndex, Unit};
use super::{Stage, Stuck};
use crate::node::NodeId;
use crate::placement::Placement;
use crate::workload::Member;

impl Stage<'_, '_> {
    /// Finds new places for those who are to be moved, the largest first, on the fullest nodes from
    /// which nobody is moved away: so each place is free whatever the order of the moves.
    pub(super) fn place_moved(&mut self) -> Result<(), Stuck> {
        let crowd = self.play.crowd;
        let mut moved: Vec<(PodIndex, Member)> = Vec::new();
        for unit in &self.units {
            if let Unit::Move(pod) = unit
                && let Some(member) = crowd.member(self.rehearsal.world(), *pod)
            {
                moved.push((*pod, member.clone()));
            }
        }
        moved.sort_by_key(|(pod, member)| {
            let cpu = member.shape.resources.cpu_milli;
            (Reverse((member.gpu_milli(), member.shape.gpus.count(), cpu)), *pod)
        });
        let sources: BTreeSet<NodeId> = moved.iter().map(|(_, pod)| pod.placement.node).collect();
        let mut left = self.play.most_moves;
        for (pod, member) in moved {
            if !self.units.contains(&Unit::Move(pod)) {
                continue;
            }
            let place = if left > 0 { self.place_for(pod, &member, &sources) } else { None };
            if let Some(place) = place {
                let placed = self.rehearsal.place(&member.shape.resources, &place);
                placed.map_err(|_| Stuck::NoRoom)?;
                self.touch(place.node);
                self.targets.insert(pod, place);
                left -= 1;
            } else {
                let reason = if left == 0 { Stuck::TooManyMoves } else { self.stuck(pod) };
                self.evict_instead(pod).ok_or(reason)?;
            }
        }
        Ok(())
    }

    fn stuck(&self, pod: PodIndex) -> Stuck {
        Stuck::Kind(self.play.crowd.pod(pod).kind)
    }

    /// Who cannot be moved is evicted, where that is allowed and nobody else has to go with it.
    fn evict_instead(&mut self, pod: PodIndex) -> Option<()> {
        let crowd = self.play.crowd;
        let (crew, number) = (crowd.crew(pod), crowd.pod(pod).crew);
        let lost = &mut self.lost[number as usize];
        if !crew.may_evict || crew.slack <= *lost {
            return None;
        }
        *lost += 1;
        self.units.remove(&Unit::Move(pod));
        self.units.insert(Unit::Evict(pod));
        Some(())
    }

    fn place_for(
        &mut self,
        pod: PodIndex,
        member: &Member,
        sources: &BTreeSet<NodeId>,
    ) -> Option<Placement> {
        let crew = self.play.crowd.crew(pod);
        let world = self.rehearsal.world();
        *self.spent += world.cluster.states().iter().count() as u64;
        let forbidden = self.play.request.forbidden;
        let is_allowed = |node| !sources.contains(&node) && !forbidden.contains(&node);
        places::find(world, &member.shape, crew.home, crew.near, &is_allowed)
    }

    /// Who is not needed stays: the dearest are asked first.
    pub(super) fn reprieve(&mut self) {
        let crowd = self.play.crowd;
        let mut units: Vec<Unit> = self.units.iter().copied().collect();
        units.sort_by_key(|unit| Reverse((crowd.price(*unit), *unit)));
        for unit in units {
            let members: Vec<Member> = crowd
                .pods_of(unit)
                .filter_map(|pod| crowd.member(self.rehearsal.world(), pod).cloned())
                .collect();
            if self.rehearsal.put_back(&members).is_err() {
                continue;
            }
            self.units.remove(&unit);
            if let Unit::Move(pod) = unit
                && let (Some(place), [member]) = (self.targets.remove(&pod), &members[..])
            {
                let outcome = self.rehearsal.release(&member.shape.resources, &place);
                debug_assert!(outcome.is_ok(), "{outcome:?}");
            }
        }
    }
}
