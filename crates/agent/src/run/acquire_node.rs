//! How an agent gets its node: it takes the lock where that is free, and asks the active agent for it where it
//! is not.
//!
//! The lock is a file, and somebody may remove it or its folder while an agent holds it. A lock that is free is
//! therefore taken for good only where nobody listens for newcomers, too; see [`crate::handover`].

use std::time::Duration;

use octavo_kube_io::admin::Check;
use tokio::time::{Instant, sleep, timeout};

use super::node::{NodeAgent, retry_delays};
use super::sockets::Sockets;
use crate::checkpoint::Lock;
use crate::failpoint;
use crate::handover::{self, HANDOVER_SOCKET, HandoverError, HandoverOffer};
use crate::kubelet::endpoint::Endpoint;

/// How often an agent that has not the node looks whether it is free.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// The same where another agent has the node and its lock was removed: each look disturbs that agent.
const CONFLICT_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// How long the kubelet is given to register a newcomer before it has the node.
const REGISTRATION_TIMEOUT: Duration = Duration::from_secs(5);
/// How often, and after which pauses, the lock is tried when a hand-over broke off: an agent that ended in the
/// middle of it leaves the lock free.
const MAX_LOCK_ATTEMPTS: u32 = 10;
const LOCK_RETRY_DELAY: Duration = Duration::from_millis(100);

/// What an agent does that has not the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It asks for the node.
    Newcomer,
    /// It has given the node away, and waits for it to be free.
    Standby,
}

/// The lock, and the sockets that are there already.
type Acquired = (Lock, Option<Sockets>);

impl NodeAgent {
    /// Waits until the node is this agent's. Sockets that are there already come with it.
    pub(super) async fn acquire(&self, role: Role) -> Acquired {
        let folder = self.config.checkpoint_folder();
        let mut check = match role {
            Role::Newcomer => self.check("node", "it is not known who serves it"),
            Role::Standby => self.standby(),
        };
        let mut is_waited_for = role == Role::Newcomer;
        let (mut since, mut told) = (None, None);
        // Whoever is asked ends what it does for it: after a failure it is left in peace for longer and longer.
        let (mut ask_at, mut backoff) = (Instant::now(), retry_delays());
        loop {
            let (mut problem, mut pause) = (None, LOCK_POLL_INTERVAL);
            match (Lock::take(&folder), role) {
                (Err(error), _) => problem = Some(error.to_string()),
                (Ok(Some(lock)), _) if !self.is_served().await => return (lock, None),
                (Ok(Some(_)), Role::Standby) => {
                    let found = format!(
                        "another agent serves it though {} is free: somebody removed the file or its \
                         folder; restart that agent",
                        folder.join("lock").display()
                    );
                    // The first time it may just be ending.
                    pause = if told.as_ref() == Some(&found) {
                        CONFLICT_POLL_INTERVAL
                    } else {
                        LOCK_POLL_INTERVAL
                    };
                    problem = Some(found);
                }
                (Ok(None), Role::Standby) => {}
                // The agent that has the node can use its driver; this one may never.
                (Ok(_), Role::Newcomer) if self.snapshots.borrow().inventory.is_none() => {
                    problem = Some("another agent serves it; the GPUs are not read yet".to_owned());
                }
                (Ok(_), Role::Newcomer) if Instant::now() < ask_at => {}
                (Ok(lock), Role::Newcomer) => {
                    since.get_or_insert_with(Instant::now);
                    let error = match self.find().await {
                        Err(error) => error,
                        Ok(offer) => match self.take_over(offer, lock).await {
                            Ok(acquired) => return acquired,
                            Err(error) => {
                                ask_at = Instant::now() + backoff.next_delay();
                                error
                            }
                        },
                    };
                    problem =
                        Some(format!("another agent serves it: {error}; its end is waited for"));
                }
            }
            if is_waited_for && since.is_some_and(|since| since.elapsed() > self.standby_after) {
                check = self.standby();
                is_waited_for = false;
            }
            if let Some(problem) = problem.filter(|problem| told.as_ref() != Some(problem)) {
                tracing::warn!(node = %self.config.node_name, %problem, "this agent has not the node");
                if is_waited_for {
                    check.fail(&problem);
                }
                told = Some(problem);
            }
            sleep(pause).await;
        }
    }

    /// Whether an agent listens for newcomers: it serves the node, whoever may have the lock.
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

    /// Takes the node from the active agent. So that no call of the kubelet is lost in between, this agent's
    /// sockets are registered before: the kubelet prefers them then, and calls wait there. `lock` is there where
    /// it was free, for the active agent holds one that was removed.
    async fn take_over(
        &self,
        offer: HandoverOffer,
        lock: Option<Lock>,
    ) -> Result<Acquired, HandoverError> {
        // Without an instance id both agents have the same sockets.
        let sockets =
            Endpoint::bind(&self.config).ok().map(|bound| Sockets::start(self, Some(bound)));
        if let Some(sockets) = &sockets {
            // A kubelet that is away or slow is not waited for: what it asks meanwhile it asks again.
            let _ = timeout(REGISTRATION_TIMEOUT, sockets.registered()).await;
        }
        failpoint::hit("handover.registered");
        let accepted = offer.accept(&self.config.checkpoint_folder()).await;
        let accepted = match (accepted, lock) {
            // What came is the removed file: the node was given all the same.
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

    /// The check of an agent that is well and has not the node.
    fn standby(&self) -> Check {
        let check = self.check("standby", "");
        check.pass();
        check
    }
}
