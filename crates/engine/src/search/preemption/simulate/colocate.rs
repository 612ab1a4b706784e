//! Colocated groups, one colocation after another. Where the next ones fit depends on the previous
//! ones.

use std::collections::{BTreeMap, BTreeSet};

use super::super::disruption_cost::DisruptionCost;
use super::super::domain_assignments;
use super::super::victims::{Disruption, Taken};
use super::{Infeasible, SearchContext, Simulation};
use crate::solve::constraints::LimitUsage;
use crate::solve::residual::AllowedDomain;
use crate::topology::{DomainId, LevelId};
use crate::transaction::Checkpoint;

/// How often one simulation may place a colocation elsewhere because later ones do not fit.
pub(super) const MAX_BACKTRACKS: u32 = 64;

/// How far a stage is, to come back to.
struct SavePoint {
    txn: Checkpoint,
    placements: usize,
    taken: Taken,
    disruptions: BTreeSet<Disruption>,
    usage: LimitUsage,
}

impl Simulation<'_, '_> {
    /// Places groups in this order. Colocations in `free` choose their domain.
    pub(super) fn place_all(
        &mut self,
        order: &[usize],
        free: &BTreeMap<u32, LevelId>,
        domain: DomainId,
        backtracks: &mut u32,
    ) -> Result<(), Infeasible> {
        let demands = self.context.demands;
        for (at, group) in order.iter().enumerate() {
            let number = demands[*group].colocation_id.filter(|number| free.contains_key(number));
            let Some(number) = number else {
                self.place_group(*group, domain, demands[*group].allowed)?;
                continue;
            };
            let (colocated, remaining): (Vec<usize>, Vec<usize>) = order[at..]
                .iter()
                .partition(|group| demands[**group].colocation_id == Some(number));
            for target in self.cheapest_domains(number, free[&number], &colocated, domain) {
                let save_point = self.save_point();
                let target = AllowedDomain::Within(target);
                let mut colocated = colocated.iter();
                let is_placed = colocated
                    .try_for_each(|group| self.place_group(*group, domain, target))
                    .is_ok();
                if is_placed && self.place_all(&remaining, free, domain, backtracks).is_ok() {
                    return Ok(());
                }
                self.restore(save_point);
                if is_placed {
                    *backtracks = backtracks.saturating_sub(1);
                }
                if *backtracks == 0 || *self.spent > self.context.limit {
                    break;
                }
            }
            return Err(Infeasible::DoesNotFit);
        }
        Ok(())
    }

    /// Possible domains of colocated groups, by the current cost if each group chooses for itself
    /// there.
    fn cheapest_domains(
        &mut self,
        number: u32,
        level: LevelId,
        colocated: &[usize],
        domain: DomainId,
    ) -> Vec<DomainId> {
        let (demands, max_fit) = (self.context.demands, self.context.max_fit);
        let topology = &self.txn.target().topology;
        let domains = domain_assignments::candidate_domains(
            topology, demands, max_fit, domain, number, level,
        );
        let mut ranked: Vec<(DisruptionCost, DomainId)> = Vec::new();
        for target in domains {
            let groups =
                colocated.iter().filter(|group| SearchContext::count(&demands[**group]) > 0);
            let costs = groups.map(|group| {
                let choice = self.choose(*group, target, SearchContext::count(&demands[*group]));
                choice.map(|choice| choice.cost)
            });
            let sum =
                costs.into_iter().try_fold(DisruptionCost::ZERO, |sum, cost| Some(sum.plus(cost?)));
            ranked.extend(sum.map(|sum| (sum, target)));
        }
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, target)| target).collect()
    }

    fn save_point(&self) -> SavePoint {
        SavePoint {
            txn: self.txn.checkpoint(),
            placements: self.placements.len(),
            taken: self.taken.clone(),
            disruptions: self.disruptions.clone(),
            usage: self.usage.clone(),
        }
    }

    fn restore(&mut self, save_point: SavePoint) {
        self.txn.roll_back(save_point.txn);
        self.placements.truncate(save_point.placements);
        (self.taken, self.disruptions) = (save_point.taken, save_point.disruptions);
        self.usage = save_point.usage;
        for node in &self.touched {
            self.cache.forget(*node);
        }
    }
}
