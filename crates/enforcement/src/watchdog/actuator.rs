//! Executes the actions decided for a share.

use octavo_api::names::{CONDITION_ENFORCED, CONDITION_OVERFLOW};
use octavo_node::failpoint;

use super::identity::ProcessIdentities;
use super::monitored_share::MonitoredShare;
use super::notify::messages::overflow_message;
use super::notify::notifier::Notify;
use super::overflow::{Action, Notice, Response};
use crate::metrics::EnforcementMetrics;
use crate::process::Process;
use crate::process::freezer::Freezer;
use crate::process::kill::kill;
use crate::process::proc::Proc;
use crate::share::{ShareFinding, Status};

/// Dependencies for executing actions.
pub(super) struct Actuator<'a> {
    pub(super) node: &'a str,
    pub(super) proc: &'a Proc,
    pub(super) freezer: &'a Freezer,
    pub(super) identities: &'a ProcessIdentities,
    pub(super) notifier: &'a dyn Notify,
    pub(super) metrics: &'a EnforcementMetrics,
}

impl Actuator<'_> {
    /// Executes all actions of a poll in order. Notices report what was done, not what was intended.
    pub(super) fn apply_all(&self, watched: &mut MonitoredShare, actions: Vec<Action>) {
        let mut has_failed = false;
        for action in actions {
            match action {
                Action::Notify(Notice::Overflow { driver_bytes, response, .. }) => {
                    self.notify(watched, Notice::Overflow { driver_bytes, response, has_failed });
                }
                action => has_failed |= !self.apply(watched, action),
            }
        }
    }

    /// Executes one action; returns whether it succeeded. A failure is logged, and retried if a later poll requests it.
    fn apply(&self, watched: &mut MonitoredShare, action: Action) -> bool {
        match action {
            // The poll has already written it to the limits file.
            Action::Gate(gate) => {
                let (claim, share) = (&watched.share.claim, &watched.share.share_id);
                tracing::info!(node = self.node, %claim, share, ?gate, "the gate of a share");
                failpoint::hit("watchdog.gate-set");
            }
            Action::Freeze(processes) => return self.freeze(watched, &processes),
            Action::Thaw => match self.freezer.thaw(&watched.share.folder) {
                Ok(()) => watched.frozen.clear(),
                Err(error) => {
                    watched.warn_once("its containers stay frozen", &error);
                    watched.record_thaw_failure();
                }
            },
            Action::Kill(processes) => return self.kill(watched, &processes),
            Action::Notify(notice) => self.notify(watched, notice),
        }
        true
    }

    fn kill(&self, watched: &mut MonitoredShare, processes: &[Process]) -> bool {
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
                    watched
                        .warn_once("a process that has too much memory cannot be killed", &error);
                }
            }
            failpoint::hit("watchdog.killed");
        }
        is_done
    }

    fn freeze(&self, watched: &mut MonitoredShare, processes: &[Process]) -> bool {
        let mut failed = Vec::new();
        for process in processes {
            let cgroups = self.identities.cgroups(*process).unwrap_or_default();
            match self.freezer.freeze(&watched.share.folder, *process, &cgroups) {
                Ok(control) => watched.frozen.extend([control]),
                Err(error) => {
                    let what = "a container that has too much memory cannot be frozen";
                    watched.warn_once(what, &error);
                    failed.push(*process);
                }
            }
        }
        watched.record_freeze_failure(&failed);
        failed.is_empty()
    }

    fn notify(&self, watched: &MonitoredShare, notice: Notice) {
        let (reason, condition) = match notice {
            Notice::Overflow { response, has_failed, .. } => {
                // If a freeze or kill failed, only the gate remains.
                let response = if has_failed { Response::Held } else { response };
                self.metrics.overflow(&watched.labels, response.as_str());
                ("MemoryOverflow", Some((CONDITION_OVERFLOW, Status::True)))
            }
            Notice::Within => ("MemoryWithinLimit", Some((CONDITION_OVERFLOW, Status::False))),
            Notice::Tampered(_) | Notice::StillFenced => {
                ("StateTampered", Some((CONDITION_ENFORCED, Status::False)))
            }
        };
        let message = overflow_message(&notice, &watched.share);
        self.notifier.share(&watched.share, ShareFinding { reason, message, condition });
    }
}
