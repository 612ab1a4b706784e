//! Does what was decided about a share.

use octavo_api::names::{CONDITION_ENFORCED, CONDITION_OVERFLOW};

use super::decision::{Action, News, Process, Response};
use super::freezer::Freezer;
use super::identity::Identities;
use super::kill::kill;
use super::proc::Proc;
use super::share::Watched;
use super::tell::Tell;
use super::words::words;
use crate::claims::{ShareNews, Status};
use crate::crash;
use crate::metrics::Metrics;

/// What it takes to do what was decided.
pub(super) struct Doer<'a> {
    pub(super) node: &'a str,
    pub(super) proc: &'a Proc,
    pub(super) freezer: &'a Freezer,
    pub(super) identities: &'a Identities,
    pub(super) tell: &'a dyn Tell,
    pub(super) metrics: &'a Metrics,
}

impl Doer<'_> {
    /// Does all that was decided at a look, in order: people are told of what was done, and not of what was
    /// meant to be.
    pub(super) fn act_all(&self, watched: &mut Watched, actions: Vec<Action>) {
        let mut has_failed = false;
        for action in actions {
            match action {
                Action::Tell(News::Overflow { driver_bytes, response, .. }) => {
                    self.tell(watched, News::Overflow { driver_bytes, response, has_failed });
                }
                action => has_failed |= !self.act(watched, action),
            }
        }
    }

    /// Does one thing, and says whether that worked; what fails is told in the log, and tried again where a
    /// later look asks for it.
    fn act(&self, watched: &mut Watched, action: Action) -> bool {
        match action {
            // The look has written it to the file that the guards read.
            Action::Gate(gate) => {
                let (claim, share) = (&watched.share.claim, &watched.share.share_id);
                tracing::info!(node = self.node, %claim, share, ?gate, "the gate of a share");
                crash::point("watchdog.gate-set");
            }
            Action::Freeze(processes) => return self.freeze(watched, &processes),
            Action::Thaw => match self.freezer.thaw(&watched.share.folder) {
                Ok(()) => watched.frozen.clear(),
                Err(error) => {
                    watched.complain("its containers stay frozen", &error);
                    watched.not_thawed();
                }
            },
            Action::Kill(processes) => return self.kill(watched, &processes),
            Action::Tell(news) => self.tell(watched, news),
        }
        true
    }

    fn kill(&self, watched: &mut Watched, processes: &[Process]) -> bool {
        let mut is_done = true;
        for process in processes {
            let (claim, pid) = (&watched.share.claim, process.pid);
            match kill(self.proc, *process) {
                Ok(()) => {
                    tracing::warn!(node = self.node, %claim, pid, "killed a process of a share that has too much memory");
                }
                Err(error) => {
                    is_done = false;
                    let error =
                        format!("{error}; the agent needs CAP_KILL and the host's pid namespace");
                    watched.complain("a process that has too much memory cannot be killed", &error);
                }
            }
            crash::point("watchdog.killed");
        }
        is_done
    }

    fn freeze(&self, watched: &mut Watched, processes: &[Process]) -> bool {
        let mut failed = Vec::new();
        for process in processes {
            let cgroups = self.identities.cgroups(*process).unwrap_or_default();
            match self.freezer.freeze(&watched.share.folder, *process, &cgroups) {
                Ok(control) => watched.frozen.extend([control]),
                Err(error) => {
                    let what = "a container that has too much memory cannot be frozen";
                    watched.complain(what, &error);
                    failed.push(*process);
                }
            }
        }
        watched.not_frozen(&failed);
        failed.is_empty()
    }

    fn tell(&self, watched: &Watched, news: News) {
        let (reason, condition) = match news {
            News::Overflow { response, has_failed, .. } => {
                // What is left of a stop that failed is the gate.
                let response = if has_failed { Response::Held } else { response };
                self.metrics.enforcement.overflow(&watched.labels, response.word());
                ("MemoryOverflow", Some((CONDITION_OVERFLOW, Status::True)))
            }
            News::Within => ("MemoryWithinLimit", Some((CONDITION_OVERFLOW, Status::False))),
            News::Tampered(_) | News::StillFenced => {
                ("StateTampered", Some((CONDITION_ENFORCED, Status::False)))
            }
        };
        let message = words(&news, &watched.share);
        self.tell.share(&watched.share, ShareNews { reason, message, condition });
    }
}
