//! Groups that lie together in one domain of a level: each domain that could hold all of them is a way of its
//! own to play a larger one through. Chosen by one group alone it might not be one for the others.
//!
//! Where there are several such numbers of groups, the ways are those of one of them: where the others go
//! depends on who went where before, and is chosen as the domain is played.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::simulate::SearchContext;
use super::upper_bound::max_in;
use crate::solve::residual::{AllowedDomain, GroupDemand, is_within};
use crate::topology::{DomainId, LevelId, Topology};

/// A domain, and where in it groups are that lie together.
pub(super) struct DomainAssignment<'a> {
    pub(super) domain: DomainId,
    /// The level at which the gang is together then.
    pub(super) level: LevelId,
    /// The groups that this way puts into one domain within; none: each chooses for itself.
    pub(super) colocation_id: Option<u32>,
    pub(super) demands: Cow<'a, [GroupDemand]>,
}

/// The ways to play domains through; none for those in which no domain could hold groups that lie
/// together, each by itself.
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
        let of = |colocation_id: u32, own: LevelId| {
            candidate_domains(topology, demands, max_fit, domain, colocation_id, own)
        };
        if free.iter().any(|(colocation_id, own)| of(*colocation_id, *own).is_empty()) {
            continue;
        }
        assignments.extend(of(first, free[&first]).into_iter().map(|target| {
            let mut demands = demands.to_vec();
            let own = demands.iter_mut().filter(|demand| demand.colocation_id == Some(first));
            own.for_each(|demand| demand.allowed = AllowedDomain::Within(target));
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

/// Numbers of groups that may choose where in a domain they lie together, and the level at which.
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

/// Domains of a level in a larger one that could hold each group of a number by itself.
pub(super) fn candidate_domains(
    topology: &Topology,
    demands: &[GroupDemand],
    max_fit: &[Vec<u32>],
    domain: DomainId,
    colocation_id: u32,
    level: LevelId,
) -> Vec<DomainId> {
    let holds_all = |target: &DomainId| {
        let own = demands
            .iter()
            .zip(max_fit)
            .filter(|(demand, _)| demand.colocation_id == Some(colocation_id));
        own.into_iter().all(|(demand, max_fit)| {
            max_in(topology, demand, max_fit, *target) >= u64::from(SearchContext::count(demand))
        })
    };
    let inside = topology.at(level).map(|(id, _)| id);
    inside.filter(|id| is_within(topology, *id, domain)).filter(holds_all).collect()
}
