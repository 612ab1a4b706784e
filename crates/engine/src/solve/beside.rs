//! Groups that lie together in one domain of a level: what those that are placed, and those that are not yet,
//! leave to another.

use std::collections::BTreeSet;

use crate::solve::need::is_within;
use crate::topology::{DomainId, LevelId, Topology};

/// Where groups are, or may be, with which another must be in one domain of a level.
pub(crate) enum Beside {
    /// None of them has a member yet: domains of the level in which each has room by itself.
    Waiting { level: LevelId, able: Vec<BTreeSet<DomainId>> },
    /// They are in this domain.
    Placed(DomainId),
    /// They are in no domain of the level.
    Nobody,
}

impl Beside {
    /// Whether they allow a domain of their level, or of a tighter one.
    pub(crate) fn allows(&self, topology: &Topology, domain: DomainId) -> bool {
        match self {
            Self::Waiting { able, .. } if able.is_empty() => true,
            Self::Waiting { level, able } => up_to(topology, domain, *level)
                .is_some_and(|above| able.iter().all(|able| able.contains(&above))),
            Self::Placed(there) => is_within(topology, domain, *there),
            Self::Nobody => false,
        }
    }
}

/// The domain of a level in which another is.
pub(crate) fn up_to(topology: &Topology, domain: DomainId, level: LevelId) -> Option<DomainId> {
    topology.ancestors(domain).find(|above| topology.domain(*above).level == level)
}
