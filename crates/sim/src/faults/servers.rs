//! The servers: which are bad, what each has failed so far, and what a repair does to it.

use super::members::Server;
use super::number::count;
use super::policy::Retirement;
use super::span::Span;
use super::study::{Repair, Study};
use crate::generate::random::Random;

/// The window of [`Retirement::Window`].
const WINDOW: Span = Span::days(7);

/// Failures at which a server is retired.
const RETIRED_AT: usize = 2;

/// The servers of the fleet and its spares.
#[derive(Clone, Debug)]
pub(super) struct Servers {
    is_bad: Vec<bool>,
    /// Times at which each was blamed.
    blamed: Vec<Vec<u64>>,
    /// Counts the repairs of each, so that what was planned before one is void.
    repairs: Vec<u32>,
}

/// A repair that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repaired {
    /// How long it takes, in milliseconds.
    pub(super) takes: u64,
    /// Whether it helps.
    pub(super) helps: bool,
}

impl Servers {
    /// A fleet in which the share of bad servers is exact, in random places.
    pub(super) fn new(study: &Study, random: &mut Random) -> Self {
        let all = study.all_servers();
        let bad = super::number::whole((study.lemons.share * count(all)).floor());
        let mut is_bad: Vec<bool> = (0..all as u64).map(|server| server < bad).collect();
        random.shuffle(&mut is_bad);
        Self { is_bad, blamed: vec![Vec::new(); all], repairs: vec![0; all] }
    }

    pub(super) fn is_bad(&self, server: Server) -> bool {
        self.is_bad[server]
    }

    /// How often the server was blamed.
    pub(super) fn blamed(&self, server: Server) -> usize {
        self.blamed[server].len()
    }

    pub(super) fn repairs(&self, server: Server) -> u32 {
        self.repairs[server]
    }

    pub(super) fn blame(&mut self, server: Server, now: u64) {
        self.blamed[server].push(now);
    }

    pub(super) fn is_retired(&self, server: Server, rule: Retirement, now: u64) -> bool {
        let since = match rule {
            Retirement::Never => return false,
            Retirement::Window => now.saturating_sub(WINDOW.millis()),
            Retirement::Lifetime => 0,
        };
        self.blamed[server].iter().rev().take_while(|time| **time >= since).count() >= RETIRED_AT
    }

    /// Begins a repair. `is_faulty` says whether there is something for the test to find.
    pub(super) fn repair(
        &mut self,
        server: Server,
        is_faulty: bool,
        repair: &Repair,
        random: &mut Random,
    ) -> Repaired {
        self.repairs[server] += 1;
        let mut takes = 0;
        loop {
            takes += repair.automatic.draw(random) + repair.test.millis();
            let in_vain = if random.unit() <= repair.manual_share {
                takes += repair.manual.draw(random);
                repair.manual_in_vain
            } else {
                repair.automatic_in_vain
            };
            let helps = random.unit() > in_vain;
            if helps || !is_faulty || random.unit() > repair.test_finds {
                return Repaired { takes, helps };
            }
        }
    }

    /// A repair that helps has ended.
    pub(super) fn heal(&mut self, server: Server) {
        self.is_bad[server] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study() -> Study {
        Study::default()
    }

    #[test]
    fn the_share_of_bad_servers_is_exact() {
        let servers = Servers::new(&study(), &mut Random::seeded(1));
        let bad = (0..study().all_servers()).filter(|server| servers.is_bad(*server)).count();
        assert_eq!(bad, 108, "5 % of 2160");
    }

    #[test]
    fn a_server_is_retired_at_two_failures_in_the_window_or_in_all() {
        let mut servers = Servers::new(&study(), &mut Random::seeded(1));
        let day = Span::days(1).millis();
        servers.blame(3, 10 * day);
        assert!(!servers.is_retired(3, Retirement::Lifetime, 11 * day));
        servers.blame(3, 20 * day);
        assert!(servers.is_retired(3, Retirement::Lifetime, 21 * day));
        assert!(!servers.is_retired(3, Retirement::Window, 21 * day));
        servers.blame(3, 22 * day);
        assert!(servers.is_retired(3, Retirement::Window, 23 * day));
        assert!(!servers.is_retired(3, Retirement::Window, 28 * day));
        assert!(!servers.is_retired(3, Retirement::Never, 23 * day));
    }

    #[test]
    fn repairs_help_as_often_as_written_and_a_test_finds_more() {
        let mut random = Random::seeded(7);
        let mut servers = Servers::new(&study(), &mut random);
        let mut helped = |repair: &Repair, is_faulty| {
            let runs = 4000;
            let repairs =
                (0..runs).map(|_| servers.repair(0, is_faulty, repair, &mut random).helps);
            count(repairs.filter(|helps| *helps).count()) / count(runs)
        };
        // 0.8 x 0.25 + 0.2 x 0.4.
        let hard = Repair { automatic_in_vain: 0.6, manual_in_vain: 0.75, ..Repair::default() };
        assert!((helped(&hard, true) - 0.28).abs() < 0.03);
        // 0.28 of the 1 - 0.72 / 2 that are not repeated.
        let tested = Repair { test_finds: 0.5, ..hard };
        assert!((helped(&tested, true) - 0.4375).abs() < 0.03);
        assert!((helped(&tested, false) - 0.28).abs() < 0.03);
        assert_eq!(servers.repairs(0), 12_000);
    }
}
