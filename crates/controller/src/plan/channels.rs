//! The IMEX channels of a domain, one in each clique of its members.
//!
//! A domain keeps its channel in a clique while it has members there. Channels in the status of other domains are taken, and
//! so are those that plans have just decided. A status that an earlier controller wrote may still come late, so two domains can
//! have the same channel. Then one moves with which no pod can have started, else the later one keeps new pods waiting.

use std::collections::BTreeSet;

use octavo_api::compute_domain::{ComputeDomainAllocationMode, ComputeDomainChannelNumber};

use crate::view::{Domain, TakenChannel, View};

/// Channels of an IMEX domain.
const CHANNELS: u32 = 2048;

/// The channels of a domain.
#[derive(Debug, Default)]
pub(super) struct ChannelPlan {
    /// One a clique, in order of cliques.
    pub(super) given: Vec<ComputeDomainChannelNumber>,
    /// Cliques in which another domain has the same channel, and that domain.
    pub(super) conflicts: Vec<(String, String)>,
    /// Cliques without a free channel.
    pub(super) full: Vec<String>,
}

/// Decides the channels.
pub(super) fn plan(view: &View, domain: &Domain, members: &BTreeSet<&str>) -> ChannelPlan {
    let mut plan = ChannelPlan::default();
    if domain.allocation_mode == ComputeDomainAllocationMode::All {
        return plan;
    }
    let cliques: BTreeSet<&str> =
        members.iter().filter_map(|node| view.clique_of_member(node)).collect();
    for clique in cliques {
        let taken = view.shared.taken.get(clique).map(Vec::as_slice).unwrap_or_default();
        let status = domain.status.as_ref().and_then(|status| status.channel(clique));
        let old = status.or_else(|| view.shared.decided.get(clique).copied());
        let (age, is_used) = (domain.age(), domain.uses_channel(clique));
        let mut equal = taken.iter().filter(|other| Some(other.channel) == old);
        let must_move = |other: &TakenChannel| !is_used && (other.is_used || other.age < age);
        let kept = old.filter(|_| !equal.clone().any(must_move));
        let free = || (0..CHANNELS).find(|free| taken.iter().all(|other| other.channel != *free));
        let Some(channel) = kept.or_else(free) else {
            plan.full.push(clique.to_owned());
            continue;
        };
        if kept.is_some()
            && let Some(other) = equal.find(|other| other.is_used && other.age < age)
        {
            plan.conflicts.push((clique.to_owned(), other.domain.clone()));
        }
        plan.given.push(ComputeDomainChannelNumber { clique_id: clique.to_owned(), channel });
    }
    plan
}

impl ChannelPlan {
    /// Whether the domain has a channel in a clique, which is its own.
    pub(super) fn has(&self, clique: &str) -> bool {
        self.given.iter().any(|channel| channel.clique_id == clique)
            && self.conflicts.iter().all(|(conflict, _)| conflict != clique)
    }
}
