//! Colocated groups: the domains that placed and unplaced groups leave to another.

use std::collections::BTreeSet;

use crate::solve::residual::is_within;
use crate::topology::{DomainId, LevelId, Topology};

/// The state of the groups colocated with a group.
pub(crate) enum Colocation {
    /// None of them has a member yet: for each group the domains of the level that fit it alone.
    Waiting { level: LevelId, fit_counts: Vec<BTreeSet<DomainId>> },
    /// They are in this domain.
    Placed(DomainId),
    /// They are in no domain of the level.
    Impossible,
}

impl Colocation {
    /// Whether they allow a domain of their level or of a tighter one.
    pub(crate) fn allows(&self, topology: &Topology, domain: DomainId) -> bool {
        match self {
            Self::Waiting { fit_counts, .. } if fit_counts.is_empty() => true,
            Self::Waiting { level, fit_counts } => {
                up_to(topology, domain, *level).is_some_and(|above| {
                    fit_counts.iter().all(|fit_counts| fit_counts.contains(&above))
                })
            }
            Self::Placed(there) => is_within(topology, domain, *there),
            Self::Impossible => false,
        }
    }
}

/// The domain of a level in which another is.
pub(crate) fn up_to(topology: &Topology, domain: DomainId, level: LevelId) -> Option<DomainId> {
    topology.ancestors(domain).find(|above| topology.domain(*above).level == level)
}
