//! One job on one fleet under one policy, from its start to its end.
//!
//! ```text
//! choose servers --> compute --(failure, alarm, parent)--> repair the blamed, swap --> compute
//!       ^                                                        \ no replacement
//!       \--------------------------------- requeue <--------------/
//! ```
//!
//! Nothing fails while the job does not compute.

mod recovery;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::choose::{self, Known};
use super::events::{self, Event, Rates};
use super::history::History;
use super::members::{Members, Server};
use super::outcome::Outcome;
use super::policy::{Policy, Recovery, Rules};
use super::pool::{Pool, Return};
use super::progress::Progress;
use super::servers::Servers;
use super::study::{Length, Study};
use crate::generate::random::Random;
use octavo_health::risk::Blame;

/// A job that takes so many times as long as it computes never ends.
const HOPELESS: u64 = 100;

/// Simulates a study under a policy. The same seed gives the same fleet to every policy.
///
/// The study must have passed [`Study::check`].
pub fn simulate(study: &Study, policy: Policy, seed: u64) -> Outcome {
    Simulation::new(study, policy.rules(), seed).run()
}

struct Simulation<'a> {
    study: &'a Study,
    rules: Rules,
    random: Random,
    rates: Rates,
    servers: Servers,
    pool: Pool,
    members: Members,
    /// Servers that stand by, for [`Recovery::Standbys`]. Some may have left meanwhile.
    standbys: VecDeque<Server>,
    /// Memory errors that come back: when, where, and after how many repairs.
    repeats: BinaryHeap<Reverse<(u64, Server, u32)>>,
    history: History,
    progress: Progress,
    /// Milliseconds since the start.
    now: u64,
    /// Milliseconds in which the job ran.
    clock: u64,
    outcome: Outcome,
}

/// Why the job does not compute.
struct Interruption {
    lost: usize,
    keeps_all: bool,
    detection: u64,
}

impl<'a> Simulation<'a> {
    fn new(study: &'a Study, rules: Rules, seed: u64) -> Self {
        let mut fleet = Random::new(seed, "fleet");
        let mut all: Vec<Server> = (0..study.all_servers()).collect();
        fleet.shuffle(&mut all);
        Self {
            study,
            rules,
            random: Random::new(seed, "faults"),
            rates: Rates::new(study),
            servers: Servers::new(study, &mut fleet),
            pool: Pool::new(all, study.fleet.servers as usize),
            members: Members::new(study.all_servers()),
            standbys: VecDeque::new(),
            repeats: BinaryHeap::new(),
            history: History::new(study),
            progress: Progress::new(study.checkpoints, study.job.length),
            now: 0,
            clock: 0,
            outcome: Outcome::default(),
        }
    }

    fn run(mut self) -> Outcome {
        while self.progress.remaining(self.now) > 0 && !self.is_hopeless() && self.fill() {
            self.select();
            self.compute();
        }
        let is_over = self.progress.remaining(self.now) == 0;
        let elapsed = match self.study.job.length {
            Length::Computing(_) => self.now,
            // A job without servers waits for them until the end.
            Length::Elapsed(span) => span.millis(),
        };
        Outcome {
            is_finished: is_over || matches!(self.study.job.length, Length::Elapsed(_)),
            elapsed_ms: elapsed,
            computed_ms: self.progress.computed(),
            ..self.outcome
        }
    }

    fn is_hopeless(&self) -> bool {
        match self.study.job.length {
            Length::Computing(span) => self.now > span.millis().saturating_mul(HOPELESS),
            Length::Elapsed(_) => false,
        }
    }

    /// Gets enough servers for a choice of all. False if they never come.
    fn fill(&mut self) -> bool {
        loop {
            self.settle();
            if self.pool.available().len() >= self.wanted() {
                return true;
            }
            if self.pool.fetch_spare() {
                self.outcome.fetched += 1;
                self.now += self.study.restart.fetch_spare.millis();
            } else if let Some(time) = self.pool.next_return() {
                self.outcome.waits += 1;
                self.now = self.now.max(time);
            } else {
                return false;
            }
        }
    }

    /// Servers that are chosen at once.
    fn wanted(&self) -> usize {
        let job = &self.study.job;
        let standbys = if self.rules.recovery == Recovery::Standbys { job.standbys } else { 0 };
        job.servers as usize + standbys as usize
    }

    /// Chooses all of the job's servers.
    fn select(&mut self) {
        for server in self.members.take() {
            self.history.left(server, self.now / 1000, self.clock);
        }
        let known =
            Known { servers: &self.servers, history: &self.history, seconds: self.now / 1000 };
        let available = self.pool.available();
        let choice = self.rules.choice;
        let mut chosen = choose::best(choice, available, self.wanted(), known, &mut self.random);
        self.standbys = chosen.split_off(self.study.job.servers as usize).into();
        for server in chosen {
            self.join(server);
        }
        self.now += self.study.restart.select.millis();
    }

    fn join(&mut self, server: Server) {
        self.members.add(server, self.servers.is_bad(server));
        self.history.joined(server, self.clock);
    }

    /// Runs the job until it ends or all of its servers must be chosen again.
    fn compute(&mut self) {
        loop {
            let remaining = self.progress.remaining(self.now);
            let drawn = self.rates.draw(&self.members, &mut self.random);
            let repeat = self.repeats.peek().map(|Reverse((time, ..))| *time);
            let to_repeat = repeat.map_or(u64::MAX, |time| time.saturating_sub(self.now));
            let to_event = drawn.map_or(u64::MAX, |(delay, _)| delay);
            let delay = to_event.min(to_repeat);
            if delay >= remaining {
                return self.pass(remaining);
            }
            self.pass(delay);
            let interruption = match drawn {
                Some((_, event)) if to_event <= to_repeat => self.happen(event),
                _ => self.repeat(),
            };
            let goes_on = interruption.is_none_or(|interruption| self.recover(&interruption));
            if !goes_on || self.is_hopeless() {
                return;
            }
        }
    }

    fn pass(&mut self, millis: u64) {
        self.now += millis;
        self.clock += millis;
        self.progress.run(millis);
    }

    fn happen(&mut self, event: Event) -> Option<Interruption> {
        match event {
            Event::Failure(server) => {
                let is_memory = self.happens(self.study.failures.memory.share);
                Some(self.fail(server, is_memory))
            }
            Event::FalseAlarm(server) => {
                self.outcome.false_alarms += 1;
                // The job has not failed, which is evidence, too.
                self.blame(server, Blame::one_of(2), false, 0);
                Some(Interruption { lost: 1, keeps_all: self.rules.alarms_wait, detection: 0 })
            }
            Event::Parent(kind, group) => self.fail_parent(kind, group),
        }
    }

    /// A memory error comes back, unless the server has left the job.
    fn repeat(&mut self) -> Option<Interruption> {
        let Reverse((_, server, repairs)) = self.repeats.pop()?;
        let is_there = self.members.contains(server) && self.servers.repairs(server) == repairs;
        is_there.then(|| self.fail(server, true))
    }

    fn fail(&mut self, server: Server, is_memory: bool) -> Interruption {
        self.outcome.failures += 1;
        let failures = &self.study.failures;
        let mut failed = vec![server];
        if self.happens(failures.second_server) {
            failed.extend(self.neighbour(server));
        }
        let detection = events::detection(&failures.detection, &mut self.random);
        if self.happens(failures.wrong_blame)
            && let Some(other) = self.members.draw_any(&mut self.random)
            && !failed.contains(&other)
        {
            failed[0] = other;
            if is_memory {
                self.plan_repeat(server);
            }
        }
        let part = Blame::one_of(u32::try_from(failed.len()).unwrap_or(u32::MAX));
        for blamed in &failed {
            self.blame(*blamed, part, is_memory && *blamed == server, detection);
        }
        Interruption { lost: failed.len(), keeps_all: false, detection }
    }

    fn fail_parent(&mut self, kind: usize, group: usize) -> Option<Interruption> {
        let parent = self.study.fleet.parents.get(kind)?;
        let size = parent.servers as usize;
        let until = self.now + parent.repair.draw(&mut self.random);
        let mut lost = 0;
        for server in (group * size..(group + 1) * size)
            .take_while(|server| *server < self.study.all_servers())
        {
            if self.members.remove(server) {
                self.history.left(server, self.now / 1000, self.clock);
                lost += 1;
            }
            if self.pool.is_available(server) {
                self.pool.send_away(server, until, Return::ParentBack);
            }
        }
        if lost == 0 {
            return None;
        }
        self.outcome.parent_failures += 1;
        let detection = events::detection(&self.study.failures.detection, &mut self.random);
        Some(Interruption { lost, keeps_all: false, detection })
    }

    /// Another member under the same first parent.
    fn neighbour(&mut self, server: Server) -> Option<Server> {
        let size = self.study.fleet.parents.first()?.servers as usize;
        let first = server / size * size;
        let last = (first + size).min(self.study.all_servers());
        let is_other = |other: &Server| *other != server && self.members.contains(*other);
        let others: Vec<Server> = (first..last).filter(is_other).collect();
        others.get(self.random.index(others.len())).copied()
    }

    /// Takes a member out of the job and repairs it.
    fn blame(&mut self, server: Server, part: Blame, is_memory: bool, detection: u64) {
        self.members.remove(server);
        self.history.left(server, self.now / 1000, self.clock);
        self.history.blamed(server, self.now / 1000, part);
        self.servers.blame(server, self.now);
        let is_faulty = is_memory || self.servers.is_bad(server);
        let repair = &self.study.repair;
        let repaired = self.servers.repair(server, is_faulty, repair, &mut self.random);
        let how = Return::Repaired { helps: repaired.helps, memory: is_memory };
        self.pool.send_away(server, self.now + detection + repaired.takes, how);
    }

    fn plan_repeat(&mut self, server: Server) {
        let after = self.study.failures.memory.draw(&mut self.random);
        let repairs = self.servers.repairs(server);
        self.repeats.push(Reverse((self.now + after, server, repairs)));
    }

    /// Receives the servers that have come back.
    fn settle(&mut self) {
        while let Some((server, how)) = self.pool.due(self.now) {
            if let Return::Repaired { helps, memory } = how {
                self.history.repaired(server, self.now / 1000);
                if helps {
                    self.servers.heal(server);
                } else if memory {
                    self.plan_repeat(server);
                }
                if self.servers.is_retired(server, self.rules.retirement, self.now) {
                    self.outcome.retired += 1;
                    continue;
                }
            }
            self.pool.add(server);
            if self.standbys.len() < self.study.job.standbys as usize {
                self.standbys.push_back(server);
            }
        }
    }

    fn happens(&mut self, share: f64) -> bool {
        self.random.unit() <= share
    }
}
