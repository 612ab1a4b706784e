//! Assignments of colocated groups to domains within the gang's domain.
//!
//! Each domain that could hold all groups of one colocation is simulated as an alternative. A
//! domain chosen for one group alone might not fit the others. With several colocations, the
//! alternatives are those of the first one. The domains of the others depend on it and are chosen
//! during the simulation.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::simulate::SearchContext;
use super::upper_bound::max_in;
use crate::solve::residual::{AllowedDomain, GroupDemand, is_within};
use crate::topology::{DomainId, LevelId, Topology};

/// A domain for the gang, and the domain within it for colocated groups.
pub(super) struct DomainAssignment<'a> {
    pub(super) domain: DomainId,
    /// The topology level of the gang's domain.
    pub(super) level: LevelId,
    /// The colocation that this assignment fixes to an inner domain; none: each group chooses for
    /// itself.
    pub(super) colocation_id: Option<u32>,
    pub(super) demands: Cow<'a, [GroupDemand]>,
}

/// The assignments to simulate. A domain without an inner domain that could hold each colocated
/// group has none.
pub(super) fn domain_assignments<'a>(
    topology: &Topology,
    demands: &'a [GroupDemand],
    max_fit: &[Vec<u32>],
    open: &[(DomainId, LevelId)],
) -> Vec<DomainAssignment<'a>> {
    let order = SearchContext::order(demands);
    let mut assignments = Vec::new();
    for &(domain, level) in open {
        let free = free_colocations(topology, demands, domain);
        // The number that is placed first.
        let first = order.iter().find_map(|group| {
            demands[*group].colocation_id.filter(|colocation_id| free.contains_key(colocation_id))
        });
        let Some(first) = first else {
            assignments.push(DomainAssignment {
                domain,
                level,
                colocation_id: None,
                demands: Cow::Borrowed(demands),
            });
            continue;
        };
        let of = |colocation_id: u32, colocated: LevelId| {
            candidate_domains(topology, demands, max_fit, domain, colocation_id, colocated)
        };
        if free.iter().any(|(colocation_id, colocated)| of(*colocation_id, *colocated).is_empty()) {
            continue;
        }
        assignments.extend(of(first, free[&first]).into_iter().map(|target| {
            let mut demands = demands.to_vec();
            let colocated = demands.iter_mut().filter(|demand| demand.colocation_id == Some(first));
            colocated.for_each(|demand| demand.allowed = AllowedDomain::Within(target));
            DomainAssignment {
                domain,
                level,
                colocation_id: Some(first),
                demands: Cow::Owned(demands),
            }
        }));
    }
    assignments
}

/// Colocations of several groups whose inner domain is not fixed by pins, with their level.
pub(super) fn free_colocations(
    topology: &Topology,
    demands: &[GroupDemand],
    domain: DomainId,
) -> BTreeMap<u32, LevelId> {
    let mut free = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for demand in demands.iter().filter(|demand| SearchContext::count(demand) > 0) {
        let (Some(colocation_id), Some(level)) = (demand.colocation_id, demand.required) else {
            continue;
        };
        let may_choose =
            demand.allowed == AllowedDomain::Anywhere && level > topology.domain(domain).level;
        // One group alone chooses well by itself.
        if may_choose && !seen.insert(colocation_id) {
            free.insert(colocation_id, level);
        }
    }
    free
}

/// Inner domains of a level that could hold each group of a colocation alone.
pub(super) fn candidate_domains(
    topology: &Topology,
    demands: &[GroupDemand],
    max_fit: &[Vec<u32>],
    domain: DomainId,
    colocation_id: u32,
    level: LevelId,
) -> Vec<DomainId> {
    let holds_all = |target: &DomainId| {
        let colocated = demands
            .iter()
            .zip(max_fit)
            .filter(|(demand, _)| demand.colocation_id == Some(colocation_id));
        colocated.into_iter().all(|(demand, max_fit)| {
            max_in(topology, demand, max_fit, *target) >= u64::from(SearchContext::count(demand))
        })
    };
    let inside = topology.at(level).map(|(id, _)| id);
    inside.filter(|id| is_within(topology, *id, domain)).filter(holds_all).collect()
}
