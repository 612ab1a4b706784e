//! Victims that turned out not to be needed stay.

use std::cmp::Reverse;

use super::super::victims::Disruption;
use super::Simulation;
use crate::workload::Member;

impl Simulation<'_, '_> {
    /// Reprieves victims that are not needed, the most expensive first.
    pub(super) fn reprieve(&mut self) {
        let pool = self.context.pool;
        let mut disruptions: Vec<Disruption> = self.disruptions.iter().copied().collect();
        disruptions.sort_by_key(|disruption| Reverse((pool.cost(*disruption), *disruption)));
        for disruption in disruptions {
            let members: Vec<Member> = pool
                .pods_of(disruption)
                .filter_map(|pod| pool.member(self.txn.target(), pod).cloned())
                .collect();
            if self.txn.restore_members(&members).is_err() {
                continue;
            }
            self.disruptions.remove(&disruption);
            if let Disruption::Move(pod) = disruption
                && let (Some(place), [member]) = (self.targets.remove(&pod), &members[..])
            {
                let outcome = self.txn.release(&member.shape.resources, &place);
                debug_assert!(outcome.is_ok(), "{outcome:?}");
            }
        }
    }
}
