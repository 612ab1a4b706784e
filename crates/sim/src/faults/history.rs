//! The risk of each server by its history alone: how long it has computed, how often it was blamed,
//! how often it was repaired.
//!
//! A server is good or bad. The probability that it is bad begins with the assumed share, falls while
//! the server computes without a failure, and rises with each failure that it is blamed for, by
//! Bayes' rule. A repair heals with the assumed probability. Log odds make each step a sum.

use super::members::Server;
use super::number::float;
use super::study::{Assumed, Study};

/// What is known about the servers.
#[derive(Clone, Debug)]
pub(super) struct History {
    /// Log odds that a server is bad, without what it has computed since it joined.
    log_odds: Vec<f64>,
    /// Since when it computes, on the job's clock of computing time.
    since: Vec<Option<u64>>,
    /// What a millisecond without a failure takes from the log odds.
    per_millisecond: f64,
    /// What a failure adds.
    per_failure: f64,
    /// The part of bad servers that stay bad through a repair.
    stays_bad: f64,
}

/// Log odds lie between this and its negative: a server is never known to be good for ever.
const MOST: f64 = 27.0;

impl History {
    /// Of a fleet whose mean rate of failures is known and whose bad servers are assumed.
    pub(super) fn new(study: &Study) -> Self {
        let Assumed { lemon_share, lemon_factor, repair_helps, wrong_blame } = study.assumed;
        let mean = study.rate() * study.lemons.mean_factor();
        let good = mean / (1.0 + lemon_share * (lemon_factor - 1.0));
        let bad = good * lemon_factor;
        // A server is blamed for its own failures and for some of the others'.
        let blamed = |rate: f64| (1.0 - wrong_blame) * rate + wrong_blame * mean;
        // A test after the repair finds some that would have come back bad.
        let finds = study.repair.test_finds;
        let in_vain = 1.0 - repair_helps;
        let all = study.all_servers();
        Self {
            log_odds: vec![libm::log(lemon_share / (1.0 - lemon_share)); all],
            since: vec![None; all],
            per_millisecond: blamed(bad) - blamed(good),
            per_failure: if good > 0.0 { libm::log(blamed(bad) / blamed(good)) } else { 0.0 },
            stays_bad: in_vain * (1.0 - finds) / (1.0 - in_vain * finds),
        }
    }

    /// The server begins to compute.
    pub(super) fn joined(&mut self, server: Server, clock: u64) {
        self.since[server] = Some(clock);
    }

    /// The server no longer computes.
    pub(super) fn left(&mut self, server: Server, clock: u64) {
        self.log_odds[server] = self.current(server, clock);
        self.since[server] = None;
    }

    /// The server is blamed for this part of a failure.
    pub(super) fn blamed(&mut self, server: Server, part: f64) {
        let odds = self.log_odds[server] + part * self.per_failure;
        self.log_odds[server] = odds.clamp(-MOST, MOST);
    }

    /// The server was repaired.
    pub(super) fn repaired(&mut self, server: Server) {
        let bad = self.stays_bad / (1.0 + libm::exp(-self.log_odds[server]));
        self.log_odds[server] = libm::log(bad / (1.0 - bad)).clamp(-MOST, MOST);
    }

    /// The risk of a server that does not compute, in millionths of log odds; less is better.
    #[expect(clippy::cast_possible_truncation, reason = "log odds are below 27")]
    pub(super) fn risk(&self, server: Server, clock: u64) -> i64 {
        (self.current(server, clock) * 1e6).round() as i64
    }

    fn current(&self, server: Server, clock: u64) -> f64 {
        let computed = self.since[server].map_or(0, |since| clock - since);
        (self.log_odds[server] - self.per_millisecond * float(computed)).clamp(-MOST, MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faults::span::Span;

    #[test]
    fn risk_falls_with_computing_and_repair_and_rises_with_blame() {
        let mut history = History::new(&Study::default());
        let prior = history.risk(0, 0);
        history.joined(0, 0);
        let month = Span::days(30).millis();
        let good = history.risk(0, month);
        assert!(good < prior);
        history.left(0, month);
        assert_eq!(history.risk(0, 2 * month), good, "idle time proves nothing");
        history.blamed(0, 1.0);
        let suspect = history.risk(0, month);
        assert!(suspect > good);
        history.repaired(0);
        let repaired = history.risk(0, month);
        assert!(repaired < suspect && repaired > good);
        history.blamed(1, 0.5);
        history.blamed(2, 1.0);
        assert!(prior < history.risk(1, 0) && history.risk(1, 0) < history.risk(2, 0));
    }

    /// 5 % of servers at 20 times the rate, one failure on the first day: by hand.
    #[test]
    #[expect(clippy::cast_possible_truncation, reason = "log odds are below 27")]
    fn the_posterior_is_that_of_bayes() {
        let mut study = Study::default();
        study.assumed.wrong_blame = 0.0;
        let mut history = History::new(&study);
        history.joined(0, 0);
        history.left(0, Span::days(1).millis());
        history.blamed(0, 1.0);
        let rate = study.failures.per_day;
        let odds: f64 = 0.05 / 0.95 * 20.0 * (-(19.0 * rate)).exp();
        let wanted = (odds.ln() * 1e6).round() as i64;
        assert!((history.risk(0, 0) - wanted).abs() <= 1);
    }

    #[test]
    fn odds_stay_within_bounds() {
        let mut history = History::new(&Study::default());
        for _ in 0..100 {
            history.blamed(0, 1.0);
        }
        assert_eq!(history.risk(0, 0), 27_000_000);
        history.joined(1, 0);
        assert_eq!(history.risk(1, u64::MAX / 2), -27_000_000);
    }
}
