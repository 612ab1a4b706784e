//! Whether this scheduler decides: it leads, has read all that others wrote before it did, and nothing is
//! on its way any more that it decided when it led before.
//!
//! What the watches have told so far says nothing of what the leader before has just given away. So a
//! leader asks for lists that are not older than its leadership, and decides once they are told. Orders
//! of an earlier leadership were decided without them: they end, refused, before the first new decision.

use tokio::time::Instant;

/// Where this scheduler stands.
#[derive(Debug, Default)]
pub(super) struct Standing {
    /// All that was written before this is known.
    read: Option<Instant>,
    /// Since when it leads, where it decides.
    decides: Option<Instant>,
    /// Since when it leads, where it has asked to read all anew.
    asked: Option<Instant>,
}

/// What is new of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// It decides no longer, or what it decided belongs to an earlier leadership.
    pub(super) has_ended: bool,
    /// It decides from now on.
    pub(super) has_begun: bool,
    /// It leads, and must read all that was written before this: said once for a leadership.
    pub(super) must_read: Option<Instant>,
}

impl Standing {
    /// All that was written before that moment is known.
    pub(super) fn has_read(&mut self, at: Instant) {
        self.read = self.read.max(Some(at));
    }

    /// Whether it decides.
    pub(super) fn decides(&self) -> bool {
        self.decides.is_some()
    }

    /// Since when it leads, where it decides.
    pub(super) fn decides_since(&self) -> Option<Instant> {
        self.decides
    }

    /// Takes in since when it leads without a gap, if it does, and whether no order is on its way.
    pub(super) fn leads_since(&mut self, since: Option<Instant>, is_idle: bool) -> Turn {
        let mut turn = Turn::default();
        if self.decides.is_some() && self.decides != since {
            self.decides = None;
            turn.has_ended = true;
        }
        if since.is_none() || self.decides() {
            return turn;
        }
        if self.read < since {
            if self.asked != since {
                self.asked = since;
                turn.must_read = since;
            }
        } else if is_idle {
            self.decides = since;
            turn.has_begun = true;
        }
        turn
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_decides_once_it_has_read_what_was_written_before_it_led() {
        let mut standing = Standing::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let nothing = Turn::default();
        assert_eq!(standing.leads_since(None, true), nothing);
        standing.has_read(at(1));
        let asks = Turn { must_read: Some(at(5)), ..nothing };
        assert_eq!(standing.leads_since(Some(at(5)), true), asks);
        standing.has_read(at(4));
        assert_eq!(standing.leads_since(Some(at(5)), true), nothing, "it has asked, and waits");
        standing.has_read(at(5));
        // An older word may come later.
        standing.has_read(at(3));
        let begins = Turn { has_begun: true, ..nothing };
        assert_eq!(standing.leads_since(Some(at(5)), true), begins);
        assert_eq!((standing.leads_since(Some(at(5)), true), standing.decides()), (nothing, true));
    }

    #[test]
    fn who_leads_again_after_a_gap_that_nobody_saw_reads_anew() {
        let mut standing = Standing::default();
        let start = Instant::now();
        let later = start + Duration::from_mins(1);
        standing.has_read(start);
        assert!(standing.leads_since(Some(start), true).has_begun);
        let turn = Turn { has_ended: true, has_begun: false, must_read: Some(later) };
        assert_eq!(standing.leads_since(Some(later), true), turn);
        assert_eq!(
            (standing.leads_since(None, true), standing.decides()),
            (Turn::default(), false)
        );
    }
    #[test]
    fn it_decides_once_nothing_is_on_its_way_that_it_decided_before() {
        let mut standing = Standing::default();
        let start = Instant::now();
        standing.has_read(start);
        assert_eq!(standing.leads_since(Some(start), false), Turn::default());
        assert!(standing.leads_since(Some(start), true).has_begun);
        // What it decides now is on its way.
        assert_eq!(standing.leads_since(Some(start), false), Turn::default());
        assert!(standing.decides());
    }
}
