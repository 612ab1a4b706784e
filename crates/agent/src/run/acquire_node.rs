//! Acquires a node: takes the lock if it is free, and otherwise requests it from the active agent.
//!
//! The lock is a file, which may be removed with its folder while an agent holds it. A free lock is therefore valid
//! only if no agent listens for handover requests; see [`crate::handover`].

use std::time::Duration;

use octavo_kube_io::admin::Check;
use octavo_node::failpoint;
use tokio::time::{Instant, sleep, timeout};

use super::node::NodeAgent;
use super::retry::retry_delays;
use super::sockets::{BoundSockets, NodeSockets};
use crate::checkpoint::Lock;
use crate::handover::{self, HANDOVER_SOCKET, HandoverError, HandoverOffer};

/// Poll interval of an agent without the node.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Poll interval if an active agent's lock file was removed. Each poll disturbs that agent.
const CONFLICT_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Time for the kubelet to register a newcomer before the handover.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(5);
/// Attempts to acquire the lock after a broken handover, and the delay between them. An agent that exits during
/// handover leaves the lock free.
const MAX_LOCK_ATTEMPTS: u32 = 10;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(100);

/// State of an agent without the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It requests the node.
    Newcomer,
    /// It handed over the node, and waits until the node is free.
    Standby,
}

/// The lock, and already bound sockets.
type Acquired = (Lock, Option<NodeSockets>);

impl NodeAgent {
    /// Waits until this agent serves the node. Already bound sockets are returned with it.
    pub(super) async fn acquire(&self, role: Role) -> Acquired {
        let folder = self.config.checkpoint_folder();
        let mut check = match role {
            Role::Newcomer => self.check("node", "the active agent is unknown"),
            Role::Standby => self.standby(),
        };
        let mut is_waited_for = role == Role::Newcomer;
        let (mut since, mut reported) = (None, None);
        // A request interrupts the active agent's work, so failures are retried with growing delays.
        let (mut ask_at, mut backoff) = (Instant::now(), retry_delays());
        loop {
            let (mut problem, mut pause) = (None, LOCK_POLL_INTERVAL);
            match (Lock::take(&folder), role) {
                (Err(error), _) => problem = Some(error.to_string()),
                (Ok(Some(lock)), _) if !self.is_served().await => return (lock, None),
                (Ok(Some(_)), Role::Standby) => {
                    let found = format!(
                        "another agent serves it although {} is free: the file or its folder was \
                         removed; restart that agent",
                        folder.join("lock").display()
                    );
                    // The first time it may just be ending.
                    pause = if reported.as_ref() == Some(&found) {
                        CONFLICT_POLL_INTERVAL
                    } else {
                        LOCK_POLL_INTERVAL
                    };
                    problem = Some(found);
                }
                (Ok(None), Role::Standby) => {}
                // The active agent may have a driver; this one possibly never.
                (Ok(_), Role::Newcomer) if self.is_opening_driver() => {
                    problem = Some("another agent serves it; the GPUs are not read yet".to_owned());
                }
                (Ok(_), Role::Newcomer) if Instant::now() < ask_at => {}
                (Ok(lock), Role::Newcomer) => 'ask: {
                    since.get_or_insert_with(Instant::now);
                    let error = match self.find().await {
                        Err(error) => error,
                        Ok(offer) if offer.has_driver != Some(false) && self.is_driver_gone() => {
                            let known = offer.has_driver.is_some();
                            offer.decline().await;
                            ask_at = Instant::now() + backoff.next_delay();
                            // Its GPUs may be read later: it is no failure of the other agent.
                            since = None;
                            problem = Some(declined(known));
                            break 'ask;
                        }
                        Ok(offer) => match self.take_over(offer, lock).await {
                            Ok(acquired) => return acquired,
                            Err(error) => {
                                ask_at = Instant::now() + backoff.next_delay();
                                error
                            }
                        },
                    };
                    problem =
                        Some(format!("another agent serves it: {error}; waiting for its exit"));
                }
            }
            if is_waited_for && since.is_some_and(|since| since.elapsed() > self.standby_after) {
                check = self.standby();
                is_waited_for = false;
            }
            if let Some(problem) = problem.filter(|problem| reported.as_ref() != Some(problem)) {
                tracing::warn!(node = %self.config.node_name, %problem, "this agent does not have the node");
                if is_waited_for {
                    check.fail(&problem);
                }
                reported = Some(problem);
            }
            sleep(pause).await;
        }
    }

    /// Whether it is not known yet if this agent can use the driver.
    fn is_opening_driver(&self) -> bool {
        let snapshot = self.snapshots.borrow();
        snapshot.inventory.is_none() && !snapshot.has_no_driver()
    }

    /// Whether this agent found no driver, and is to find one.
    fn is_driver_gone(&self) -> bool {
        let snapshot = self.snapshots.borrow();
        snapshot.is_driver_gone && !snapshot.is_driver_released
    }

    /// Whether an agent listens for handover requests. It serves the node, whichever process has the lock.
    async fn is_served(&self) -> bool {
        handover::is_listening(&self.config.plugin_folder().join(HANDOVER_SOCKET)).await
    }

    /// Finds the active agent.
    async fn find(&self) -> Result<HandoverOffer, HandoverError> {
        let path = self.config.plugin_folder().join(HANDOVER_SOCKET);
        let offer = HandoverOffer::find(&path, self.instance()).await?;
        failpoint::hit("handover.found");
        Ok(offer)
    }

    /// Takes over the node from the active agent.
    ///
    /// This agent's sockets are registered first, so that no kubelet call is lost: the kubelet then prefers them, and
    /// calls wait there. `lock` is set if the lock was free because the active agent's lock file was removed.
    async fn take_over(
        &self,
        offer: HandoverOffer,
        lock: Option<Lock>,
    ) -> Result<Acquired, HandoverError> {
        // Without an instance id both agents would use the same sockets.
        let sockets = BoundSockets::bind(&self.config)
            .ok()
            .map(|bound| NodeSockets::start(self, Some(bound)));
        if let Some(sockets) = &sockets {
            // Do not wait for a slow kubelet. It repeats lost calls.
            let _ = timeout(REGISTRATION_TIMEOUT, sockets.registered()).await;
        }
        failpoint::hit("handover.registered");
        let accepted = offer.accept(&self.config.checkpoint_folder()).await;
        let accepted = match (accepted, lock) {
            // The received lock is the removed file; the node was handed over nevertheless.
            (Err(HandoverError::Lock(_)), Some(lock)) => Ok(lock),
            (Err(error), lock) => {
                drop(lock);
                self.take_lock_after_exit().await.ok_or(error)
            }
            (accepted, _) => accepted,
        };
        match accepted {
            Ok(lock) => {
                failpoint::hit("handover.taken");
                Ok((lock, sockets))
            }
            Err(error) => {
                if let Some(sockets) = sockets {
                    sockets.close().await;
                }
                Err(error)
            }
        }
    }

    /// The lock, where the active agent ends now.
    async fn take_lock_after_exit(&self) -> Option<Lock> {
        let folder = self.config.checkpoint_folder();
        for _ in 0..MAX_LOCK_ATTEMPTS {
            if let Ok(Some(lock)) = Lock::take(&folder)
                && !self.is_served().await
            {
                return Some(lock);
            }
            sleep(LOCK_RETRY_DELAY).await;
        }
        None
    }

    /// The readiness check of a healthy agent without the node.
    fn standby(&self) -> Check {
        let check = self.check("standby", "");
        check.pass();
        check
    }
}

/// Why a newcomer without a driver leaves the node where it is. `is_known`: the active agent tells that it has one.
fn declined(is_known: bool) -> String {
    let other = if is_known { "has a driver" } else { "does not tell whether it has a driver" };
    format!("another agent serves it: that agent {other}, and this one finds none")
}
