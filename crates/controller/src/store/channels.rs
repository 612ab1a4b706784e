//! IMEX channels of domains by clique: those in their status, and those that plans have decided.
//!
//! Plans of two domains may run at the same time. So what a plan decides counts at once, before its write is answered.

use std::collections::{BTreeMap, BTreeSet};

use octavo_api::compute_domain::ComputeDomainChannelNumber;

use crate::view::Domain;

/// Channels by clique and UID of the domain.
type ByClique = BTreeMap<String, BTreeMap<String, u32>>;

/// The channels of all domains.
#[derive(Clone, Debug, Default)]
pub(super) struct Channels {
    observed: ByClique,
    decided: ByClique,
}

impl Channels {
    /// Adds the channels of a domain's status.
    pub(super) fn add(&mut self, domain: &Domain) {
        set(&mut self.observed, &domain.uid, of_status(domain));
    }

    /// Removes them.
    pub(super) fn remove(&mut self, domain: &Domain) {
        unset(&mut self.observed, &domain.uid, of_status(domain));
    }

    /// Replaces what plans decided for a domain.
    pub(super) fn decide(&mut self, uid: &str, channels: &[ComputeDomainChannelNumber]) {
        for domains in self.decided.values_mut() {
            domains.remove(uid);
        }
        self.decided.retain(|_, domains| !domains.is_empty());
        set(&mut self.decided, uid, channels);
    }

    /// Forgets all decisions: those of a leadership that is over.
    pub(super) fn forget_decisions(&mut self) {
        self.decided.clear();
    }

    /// What plans decided for a domain, by clique.
    pub(super) fn decided(&self, uid: &str) -> BTreeMap<String, u32> {
        let of_domain = self.decided.iter().filter_map(|(clique, domains)| {
            domains.get(uid).map(|channel| (clique.clone(), *channel))
        });
        of_domain.collect()
    }

    /// The channels of a clique with their domains' UIDs. A domain may have two: one in its status, one decided.
    pub(super) fn in_clique(&self, clique: &str) -> BTreeSet<(&str, u32)> {
        let domains = [&self.observed, &self.decided].into_iter();
        let domains = domains.filter_map(|all| all.get(clique)).flatten();
        domains.map(|(uid, channel)| (uid.as_str(), *channel)).collect()
    }
}

fn of_status(domain: &Domain) -> &[ComputeDomainChannelNumber] {
    domain.status.as_ref().map(|status| status.channels.as_slice()).unwrap_or_default()
}

fn set(all: &mut ByClique, uid: &str, channels: &[ComputeDomainChannelNumber]) {
    for ComputeDomainChannelNumber { clique_id, channel } in channels {
        all.entry(clique_id.clone()).or_default().insert(uid.to_owned(), *channel);
    }
}

fn unset(all: &mut ByClique, uid: &str, channels: &[ComputeDomainChannelNumber]) {
    for ComputeDomainChannelNumber { clique_id, .. } in channels {
        if let Some(domains) = all.get_mut(clique_id) {
            domains.remove(uid);
            if domains.is_empty() {
                all.remove(clique_id);
            }
        }
    }
}
