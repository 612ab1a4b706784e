//! How the job goes on after an interruption.

use super::{Interruption, Simulation};
use crate::faults::choose::{self, Known};
use crate::faults::members::Server;
use crate::faults::policy::Recovery;
use crate::faults::study::Swap;

impl Simulation<'_> {
    /// Brings the job back. False if all of its servers must be chosen again.
    pub(super) fn recover(&mut self, interruption: &Interruption) -> bool {
        let restart = &self.study.restart;
        self.now += interruption.detection + restart.recovery.millis();
        self.settle();
        self.order_spare();
        let found = self.replacements(interruption.lost);
        let is_live = found.is_some() && restart.swap == Swap::Live;
        self.outcome.lost_ms += self.progress.interrupt(interruption.keeps_all || is_live);
        let Some(found) = found else {
            self.outcome.requeues += 1;
            self.now += restart.requeue.millis();
            return false;
        };
        self.outcome.swaps += 1;
        self.now += if is_live { restart.live } else { restart.in_place }.millis();
        if found.len() > self.study.job.standbys as usize {
            self.now += restart.cold_start.millis();
        }
        for server in found {
            self.join(server);
        }
        true
    }

    /// Orders a spare, for later, if fewer idle servers than stand by are as good as one.
    fn order_spare(&mut self) {
        if !self.rules.orders_spares {
            return;
        }
        let unknown = self.history.unknown();
        let seconds = self.now / 1000;
        let is_good = |server: &&Server| {
            !self.members.contains(**server)
                && self.history.risk(**server, seconds) <= unknown
                && !self.history.is_on_probation(**server, seconds)
        };
        let good = self.pool.available().iter().filter(is_good).count();
        let until = self.now + self.study.restart.fetch_spare.millis();
        if good < self.study.job.standbys as usize && self.pool.order_spare(until) {
            self.outcome.fetched += 1;
        }
    }

    /// Replacements for this many lost servers, as far as the policy swaps them.
    fn replacements(&mut self, lost: usize) -> Option<Vec<Server>> {
        match self.rules.recovery {
            Recovery::Requeue => None,
            Recovery::SwapOne if lost != 1 => None,
            Recovery::Standbys => {
                let mut found = Vec::new();
                while found.len() < lost {
                    let server = self.standbys.pop_front()?;
                    if self.pool.is_available(server) && !self.members.contains(server) {
                        found.push(server);
                    }
                }
                Some(found)
            }
            Recovery::SwapOne | Recovery::SwapAll => {
                let is_idle = |server: &Server| !self.members.contains(*server);
                let idle = self.pool.available().iter().copied().filter(is_idle);
                let known = Known {
                    servers: &self.servers,
                    history: &self.history,
                    seconds: self.now / 1000,
                };
                choose::replacements(self.rules.choice, idle, lost, known)
            }
        }
    }
}
