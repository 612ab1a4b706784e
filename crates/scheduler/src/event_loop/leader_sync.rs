//! Leader synchronization: whether this scheduler may decide. It must lead, must have relisted
//! since it leads, and must have no operation of an earlier term in flight.
//!
//! A watch may lag behind the last writes of the previous leader. So a new leader requests lists
//! that are no older than its term, and decides once they are applied. Operations of an earlier term were decided without these
//! lists. They must end before the first new decision.

use tokio::time::Instant;

/// State of the leader synchronization.
#[derive(Debug, Default)]
pub(super) struct LeaderSync {
    /// All writes before this instant are known.
    relisted_until: Option<Instant>,
    /// Start of the term, while deciding.
    deciding_since: Option<Instant>,
    /// Start of the term for which a relist was requested.
    relist_requested: Option<Instant>,
}

/// What has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Transition {
    /// Decisions stop, or earlier decisions belong to an earlier term.
    pub(super) stopped_deciding: bool,
    /// Decisions start.
    pub(super) started_deciding: bool,
    /// A relist must be requested that is no older than this instant. Set once for each term.
    pub(super) relist_since: Option<Instant>,
}

impl LeaderSync {
    /// Records that all writes before this instant are known.
    pub(super) fn record_relist(&mut self, at: Instant) {
        self.relisted_until = self.relisted_until.max(Some(at));
    }

    /// Whether this scheduler decides.
    pub(super) fn is_deciding(&self) -> bool {
        self.deciding_since.is_some()
    }

    /// Start of the term, while deciding.
    pub(super) fn deciding_since(&self) -> Option<Instant> {
        self.deciding_since
    }

    /// Updates the term. `since` is the start of the uninterrupted term, if this scheduler leads.
    /// `has_no_ops` tells whether no operation is in flight.
    pub(super) fn observe_term(&mut self, since: Option<Instant>, has_no_ops: bool) -> Transition {
        let mut transition = Transition::default();
        if self.deciding_since.is_some() && self.deciding_since != since {
            self.deciding_since = None;
            transition.stopped_deciding = true;
        }
        if since.is_none() || self.is_deciding() {
            return transition;
        }
        if self.relisted_until < since {
            if self.relist_requested != since {
                self.relist_requested = since;
                transition.relist_since = since;
            }
        } else if has_no_ops {
            self.deciding_since = since;
            transition.started_deciding = true;
        }
        transition
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_decides_after_the_relist_of_its_term() {
        let mut leader_sync = LeaderSync::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let nothing = Transition::default();
        assert_eq!(leader_sync.observe_term(None, true), nothing);
        leader_sync.record_relist(at(1));
        let asks = Transition { relist_since: Some(at(5)), ..nothing };
        assert_eq!(leader_sync.observe_term(Some(at(5)), true), asks);
        leader_sync.record_relist(at(4));
        assert_eq!(
            leader_sync.observe_term(Some(at(5)), true),
            nothing,
            "the relist was requested already"
        );
        leader_sync.record_relist(at(5));
        // An older report may come later.
        leader_sync.record_relist(at(3));
        let begins = Transition { started_deciding: true, ..nothing };
        assert_eq!(leader_sync.observe_term(Some(at(5)), true), begins);
        assert_eq!(
            (leader_sync.observe_term(Some(at(5)), true), leader_sync.is_deciding()),
            (nothing, true)
        );
    }

    #[test]
    fn a_new_term_after_an_unobserved_gap_relists() {
        let mut leader_sync = LeaderSync::default();
        let start = Instant::now();
        let later = start + Duration::from_mins(1);
        leader_sync.record_relist(start);
        assert!(leader_sync.observe_term(Some(start), true).started_deciding);
        let transition = Transition {
            stopped_deciding: true,
            started_deciding: false,
            relist_since: Some(later),
        };
        assert_eq!(leader_sync.observe_term(Some(later), true), transition);
        assert_eq!(
            (leader_sync.observe_term(None, true), leader_sync.is_deciding()),
            (Transition::default(), false)
        );
    }
    #[test]
    fn it_decides_once_no_operation_is_in_flight() {
        let mut leader_sync = LeaderSync::default();
        let start = Instant::now();
        leader_sync.record_relist(start);
        assert_eq!(leader_sync.observe_term(Some(start), false), Transition::default());
        assert!(leader_sync.observe_term(Some(start), true).started_deciding);
        // The new operation does not matter.
        assert_eq!(leader_sync.observe_term(Some(start), false), Transition::default());
        assert!(leader_sync.is_deciding());
    }
}
