//! Whether this scheduler decides: it leads, has read all that others wrote before it did, and nothing is
//! on its way any more that it decided when it led before.
//!
//! What the watches have told so far says nothing of what the leader before has just given away. So a
//! leader asks for lists that are not older than its leadership, and decides once they are told. Orders
//! of an earlier leadership were decided without them: they end, refused, before the first new decision.

use tokio::time::Instant;

/// Where this scheduler stands.
#[derive(Debug, Default)]
pub(super) struct LeaderSync {
    /// All that was written before this is known.
    relisted_until: Option<Instant>,
    /// Since when it leads, where it decides.
    deciding_since: Option<Instant>,
    /// Since when it leads, where it has asked to read all anew.
    relist_requested: Option<Instant>,
}

/// What is new of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Transition {
    /// It decides no longer, or what it decided belongs to an earlier leadership.
    pub(super) stopped_deciding: bool,
    /// It decides from now on.
    pub(super) started_deciding: bool,
    /// It leads, and must read all that was written before this: said once for a leadership.
    pub(super) relist_since: Option<Instant>,
}

impl LeaderSync {
    /// All that was written before that moment is known.
    pub(super) fn record_relist(&mut self, at: Instant) {
        self.relisted_until = self.relisted_until.max(Some(at));
    }

    /// Whether it decides.
    pub(super) fn is_deciding(&self) -> bool {
        self.deciding_since.is_some()
    }

    /// Since when it leads, where it decides.
    pub(super) fn deciding_since(&self) -> Option<Instant> {
        self.deciding_since
    }

    /// Takes in since when it leads without a gap, if it does, and whether no order is on its way.
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
        assert_eq!(leader_sync.observe_term(Some(at(5)), true), nothing, "it has asked, and waits");
        leader_sync.record_relist(at(5));
        // An older word may come later.
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
        // What it decides now is on its way.
        assert_eq!(leader_sync.observe_term(Some(start), false), Transition::default());
        assert!(leader_sync.is_deciding());
    }
}
