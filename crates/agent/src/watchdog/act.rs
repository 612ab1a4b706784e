//! Does what was decided about a share.

use octavo_api::names::{CONDITION_ENFORCED, CONDITION_OVERFLOW};

use super::decision::{Action, News, Process};
use super::freezer::Freezer;
use super::identity::Identities;
use super::kill::kill;
use super::proc::Proc;
use super::share::Watched;
use super::tell::Tell;
use super::words::words;
use crate::claims::ShareNews;
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
    /// Does one thing; what fails is told in the log, and tried again where a later look asks for it.
    pub(super) fn act(&self, watched: &mut Watched, action: Action) {
        match action {
            // The look has written it to the file that the guards read.
            Action::Gate(gate) => {
                let (claim, share) = (&watched.share.claim, &watched.share.share_id);
                tracing::info!(node = self.node, %claim, share, ?gate, "the gate of a share");
                crash::point("watchdog.gate-set");
            }
            Action::Freeze(processes) => self.freeze(watched, &processes),
            Action::Thaw => {
                if let Err(error) = self.freezer.thaw(&watched.share.folder) {
                    watched.complain("its containers stay frozen", &error);
                    watched.not_thawed();
                }
            }
            Action::Kill(processes) => {
                for process in processes {
                    let (claim, pid) = (&watched.share.claim, process.pid);
                    match kill(self.proc, process) {
                        Ok(()) => {
                            tracing::warn!(node = self.node, %claim, pid, "killed a process of a share that has too much memory");
                        }
                        Err(error) => watched.complain(
                            "a process that has too much memory cannot be killed",
                            &format!(
                                "{error}; the agent needs CAP_KILL and the host's pid namespace"
                            ),
                        ),
                    }
                    crash::point("watchdog.killed");
                }
            }
            Action::Tell(news) => self.tell(watched, news),
        }
    }

    fn freeze(&self, watched: &mut Watched, processes: &[Process]) {
        let mut failed = Vec::new();
        for process in processes {
            let cgroups = self.identities.cgroups(*process).unwrap_or_default();
            if let Err(error) = self.freezer.freeze(&watched.share.folder, *process, &cgroups) {
                watched.complain("a container that has too much memory cannot be frozen", &error);
                failed.push(*process);
            }
        }
        watched.not_frozen(&failed);
    }

    fn tell(&self, watched: &Watched, news: News) {
        let (reason, condition) = match news {
            News::Overflow { response, .. } => {
                self.metrics.wall.overflow(&watched.labels, response.word());
                ("MemoryOverflow", Some((CONDITION_OVERFLOW, true)))
            }
            News::Within => ("MemoryWithinLimit", Some((CONDITION_OVERFLOW, false))),
            News::Tampered(_) | News::StillFenced => {
                ("StateTampered", Some((CONDITION_ENFORCED, false)))
            }
        };
        let message = words(&news, &watched.share);
        self.tell.share(&watched.share, ShareNews { reason, message, condition });
    }
}
