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
mod tests;
