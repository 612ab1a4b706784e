//! What keeps a domain from its channels.

use octavo_api::compute_domain::ComputeDomainAllocationMode;

use super::super::Reason;
use super::super::conditions::{Verdict, listed, listed_for};
use super::Facts;

impl Facts<'_> {
    /// Why members of the domain have no channel.
    pub(super) fn channel_problem(&self) -> Option<Verdict> {
        if !self.is_shared() {
            return None;
        }
        if self.domain.allocation_mode == ComputeDomainAllocationMode::All {
            let note = "The domain asks for all channels (spec.channel.allocationMode: All), and each domain has one \
                        (imex.isolation: channel). Create it with allocationMode: Single.";
            return Some(Verdict::no(Reason::AllNotWithChannels, note.to_owned()));
        }
        let conflicts = &self.channels.conflicts;
        if !conflicts.is_empty() {
            let note = format!(
                "Pods of older ComputeDomains run with the same channel in NVLink clique {}: {}. New pods wait until the pods of \
                 one of the domains are deleted.",
                listed(conflicts.iter().map(|(clique, _)| clique.as_str())),
                listed_for(
                    &self.domain.namespace,
                    conflicts.iter().map(|(_, domain)| domain.as_str())
                )
            );
            return Some(Verdict::no(Reason::ChannelConflict, note));
        }
        let full = &self.channels.full;
        (!full.is_empty()).then(|| {
            let note = format!(
                "All channels are used in NVLink clique {}. Pods wait until other ComputeDomains leave it.",
                listed(full.iter().map(String::as_str))
            );
            Verdict::no(Reason::ChannelsUsedUp, note)
        })
    }
}
