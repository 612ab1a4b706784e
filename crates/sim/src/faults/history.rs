//! The risk of each server by its history alone, by the rules that a live cluster has.
//!
//! A server's risk changes only when it leaves the job, is blamed or is repaired. In the model of two
//! classes it does not change with time either, so it is computed once.

use octavo_health::ONE;
use octavo_health::risk::{Blame, History as Evidence, Model, Rate, Settings};
use octavo_health::state::Rules;

use super::events::DAY;
use super::members::Server;
use super::number::{float, whole};
use super::study::{Assumed, Study};

/// What is known about the servers.
#[derive(Clone, Debug)]
pub(super) struct History {
    settings: Settings,
    /// The rate of a server before any evidence.
    base: Rate,
    /// The probability that a bad server is bad after a repair and its test, in billionths.
    in_vain: u64,
    evidence: Vec<Evidence>,
    /// Since when each computes, in milliseconds of computing time.
    since: Vec<Option<u64>>,
    /// The risk of each in the model of two classes.
    risks: Vec<i64>,
    unknown: i64,
    /// When each came back from its last repair, in seconds since the start.
    repaired_at: Vec<Option<u64>>,
    /// Time of probation, in seconds.
    probation: u64,
}

impl History {
    /// Of a fleet whose mean rate of failures is known.
    pub(super) fn new(study: &Study) -> Self {
        let Assumed { risk: settings, repair_helps } = study.octavo;
        let mean = study.rate() * DAY * study.lemons.mean_factor();
        let classes = settings.two_classes;
        let surplus = float(classes.share_bad) / 1e9 * (float(classes.times) / 1e3 - 1.0);
        let base = match settings.model {
            Model::Decayed => mean,
            Model::TwoClasses => mean / (1.0 + surplus),
        };
        // A test after the repair finds some that would have come back bad.
        let (in_vain, finds) = (1.0 - repair_helps, study.repair.test_finds);
        let in_vain = in_vain * (1.0 - finds) / (1.0 - in_vain * finds);
        let base = Rate(whole(base * float(ONE)));
        let all = study.all_servers();
        let unknown = risk(&Evidence::default(), &settings, base, 0);
        Self {
            settings,
            base,
            in_vain: whole(in_vain * float(ONE)),
            evidence: vec![Evidence::default(); all],
            since: vec![None; all],
            risks: vec![unknown; all],
            unknown,
            repaired_at: vec![None; all],
            probation: Rules::default().probation,
        }
    }

    /// The server begins to compute.
    pub(super) fn joined(&mut self, server: Server, clock: u64) {
        self.since[server] = Some(clock);
    }

    /// The server no longer computes, `seconds` after the start.
    pub(super) fn left(&mut self, server: Server, seconds: u64, clock: u64) {
        let Some(since) = self.since[server].take() else { return };
        self.evidence[server].expose(&self.settings, seconds, (clock - since) / 1000);
        self.update(server, seconds);
    }

    /// The server is blamed for this part of a failure.
    pub(super) fn blamed(&mut self, server: Server, seconds: u64, part: Blame) {
        self.evidence[server].fail(&self.settings, seconds, part);
        self.update(server, seconds);
    }

    /// The server was repaired.
    pub(super) fn repaired(&mut self, server: Server, seconds: u64) {
        self.evidence[server].repaired(&self.settings, self.base, self.in_vain);
        self.repaired_at[server] = Some(seconds);
        self.update(server, seconds);
    }

    /// The risk of a server that does not compute; less is better.
    pub(super) fn risk(&self, server: Server, seconds: u64) -> i64 {
        match self.settings.model {
            Model::TwoClasses => self.risks[server],
            Model::Decayed => risk(&self.evidence[server], &self.settings, self.base, seconds),
        }
    }

    /// Whether a server came back from a repair of late. An error that comes back often does so soon.
    pub(super) fn is_on_probation(&self, server: Server, seconds: u64) -> bool {
        self.repaired_at[server].is_some_and(|at| seconds.saturating_sub(at) < self.probation)
    }

    /// The risk of a server without any history.
    pub(super) fn unknown(&self) -> i64 {
        self.unknown
    }

    fn update(&mut self, server: Server, seconds: u64) {
        self.risks[server] = risk(&self.evidence[server], &self.settings, self.base, seconds);
    }
}

/// Orders servers: log odds are finer than rates where there are any.
fn risk(evidence: &Evidence, settings: &Settings, base: Rate, seconds: u64) -> i64 {
    match settings.model {
        Model::TwoClasses => evidence.log_odds_of_bad(settings, base),
        Model::Decayed => {
            i64::try_from(evidence.score(settings, base, seconds).rate.0).unwrap_or(i64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::span::Span;

    const MONTH: u64 = 30 * 86_400;

    #[test]
    fn risk_falls_with_computing_and_rises_with_blame() {
        for model in [Model::TwoClasses, Model::Decayed] {
            let mut study = Study::default();
            study.octavo.risk.model = model;
            let mut history = History::new(&study);
            assert_eq!(history.risk(0, 0), history.unknown());
            history.joined(0, 0);
            history.left(0, MONTH, Span::days(30).millis());
            let good = history.risk(0, MONTH);
            assert!(good < history.unknown(), "{model:?}");
            history.blamed(0, MONTH, Blame::WHOLE);
            let suspect = history.risk(0, MONTH);
            assert!(suspect > good, "{model:?}");
            history.blamed(1, MONTH, Blame::one_of(2));
            history.blamed(2, MONTH, Blame::WHOLE);
            assert!(history.unknown() < history.risk(1, MONTH));
            assert!(history.risk(1, MONTH) < history.risk(2, MONTH), "{model:?}");
        }
    }

    #[test]
    fn a_server_is_on_probation_for_a_day_after_its_repair() {
        let mut history = History::new(&Study::default());
        assert!(!history.is_on_probation(0, 0));
        history.repaired(0, 100);
        let on_probation = [100, 86_499, 86_500].map(|now| history.is_on_probation(0, now));
        assert_eq!(on_probation, [true, true, false]);
    }

    #[test]
    fn a_repair_and_a_test_lower_the_risk() {
        let after = |finds| {
            let mut study = Study::default();
            study.repair.test_finds = finds;
            let mut history = History::new(&study);
            history.blamed(0, 0, Blame::WHOLE);
            let suspect = history.risk(0, 0);
            history.repaired(0, 0);
            assert!(history.risk(0, 0) < suspect);
            history.risk(0, 0)
        };
        assert!(after(0.5) < after(0.0));
    }
}
