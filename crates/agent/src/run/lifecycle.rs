//! The life of a node's agent: its tasks, and how it comes to serve the node.
//!
//! ```text
//! newcomer --- lock is free, or handed over ---> active --- another agent requests it ---> standby
//!                                                  ^                                         |
//!                                                  +------ the other agent has exited -------+
//! ```
//!
//! A node has one active agent, which holds the lock of the checkpoint folder; see [`crate::handover`].

use std::sync::Arc;

use kube::Client;
use octavo_node::failpoint;

use super::Shared;
use super::acquire_node::Role;
use super::leave;
use super::node::{self, NodeAgent};
use super::node_settings;
use crate::config::{Mode, NodeConfig};

impl NodeAgent {
    /// Starts the node's tasks under the process's tracker. Fails only if the system cannot create a thread.
    pub(super) fn start(config: NodeConfig, shared: Shared) -> anyhow::Result<()> {
        let opener = node::opener(&config);
        let agent = Self::new(config, shared, opener)?;
        let (tasks, stop) = (agent.shared.tasks.clone(), agent.shared.stop.clone());
        tasks.spawn(agent.follow_driver());
        tasks.spawn(async move {
            let client = stop.run_until_cancelled(Box::pin(agent.connect())).await;
            if let Some(client) = client {
                Box::pin(agent.run(client)).await;
            }
        });
        Ok(())
    }

    /// Serves the node whenever this agent has it, until the process stops.
    pub(super) async fn run(self, client: Client) {
        let stop = self.shared.stop.clone();
        self.follow_settings(client.clone());
        let mut role = Role::Newcomer;
        let mut kept = None;
        loop {
            let (lock, sockets) = match kept.take() {
                Some(lock) => (lock, None),
                None => match stop.run_until_cancelled(Box::pin(self.acquire(role))).await {
                    Some(acquired) => acquired,
                    None => return,
                },
            };
            let node = &self.config.node_name;
            tracing::info!(%node, instance = self.instance(), "this agent serves the node");
            let request = Box::pin(self.serve(sockets, &client)).await;
            // Only the lock is left. It goes to the requesting agent, or becomes free.
            let Some(request) = request else {
                if *self.reached.borrow() == Some(Mode::None) {
                    leave::remove_files(&self.config);
                }
                return drop(lock);
            };
            let instance = request.instance.clone();
            match request.give(lock).await {
                Ok(()) => {
                    failpoint::hit("handover.given");
                    tracing::info!(%node, to = %instance, "the node is handed over; standing by");
                    role = Role::Standby;
                }
                Err((lock, error)) => {
                    tracing::warn!(%node, to = %instance, %error, "the node could not be handed over");
                    kept = Some(lock);
                }
            }
        }
    }

    /// Follows the node's settings, whether this agent serves the node or not: each agent of a node has the driver open.
    fn follow_settings(&self, client: Client) {
        let (release, mut read) = (self.release.clone(), self.settings.subscribe());
        let waker = self.waker.clone();
        let relay = async move {
            while read.changed().await.is_ok() {
                let is_released = read.borrow_and_update().as_ref().map(|read| read.is_released);
                if release
                    .send_if_modified(|old| std::mem::replace(old, is_released) != is_released)
                {
                    waker.look();
                }
            }
        };
        let follow = node_settings::follow(
            client,
            Arc::clone(&self.config),
            self.settings.clone(),
            self.identity.clone(),
        );
        let (stop, at_end) = (self.shared.stop.clone(), self.waker.clone());
        self.shared.tasks.spawn(async move {
            let both = async { tokio::join!(Box::pin(follow), relay) };
            stop.run_until_cancelled(both).await;
            at_end.look();
        });
    }
}
