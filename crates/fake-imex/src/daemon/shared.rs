//! What the tasks of a service have in common: its settings, its state, and who learns of a change.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use octavo_fake_gpu::NodeId;
use octavo_fake_gpu::imex::ServiceReport;
use octavo_machine::ImexState;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::driver::DriverSession;
use crate::log::Log;
use crate::names::Names;
use crate::status::{Connection, ConnectionStatus, Node, NodeStatus};
use crate::stream::Transport;

/// What the tasks of a service have in common.
pub(crate) struct Shared {
    pub(super) config: Config,
    pub(super) nodes: Vec<String>,
    pub(super) own: u32,
    pub(super) names: Names,
    pub(super) version: String,
    pub(super) transport: Transport,
    pub(super) log: Log,
    /// Held until all tasks have ended.
    pub(super) driver: Option<DriverSession>,
    /// State and connections; the sender tells of each change.
    pub(super) state: watch::Sender<State>,
    pub(super) reload: watch::Sender<u64>,
    pub(super) faults: watch::Receiver<ImexState>,
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// What changes while a service runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(super) status: NodeStatus,
    pub(super) links: Vec<ConnectionStatus>,
    /// The nodes at the other ends, as far as they have told it.
    pub(super) peers: BTreeMap<u32, NodeId>,
}

impl State {
    /// The state as programs learn it.
    fn to_report(&self) -> ServiceReport {
        let nodes = |status: ConnectionStatus| {
            let peers = self.peers.iter();
            let of_status =
                peers.filter(|(peer, _)| self.links.get(**peer as usize) == Some(&status));
            of_status.map(|(_, node)| *node).collect()
        };
        ServiceReport {
            is_ready: self.status == NodeStatus::Ready,
            connected: nodes(ConnectionStatus::Connected),
            lost: nodes(ConnectionStatus::Disconnected),
        }
    }
}

impl Shared {
    /// Runs a task until the service ends.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(task).await });
    }

    pub(crate) fn own(&self) -> u32 {
        self.own
    }

    pub(crate) fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// A node's name in the list.
    pub(crate) fn node(&self, index: u32) -> &str {
        self.nodes.get(index as usize).map_or("", String::as_str)
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn port(&self) -> u16 {
        self.config.port
    }

    pub(crate) fn transport(&self) -> &Transport {
        &self.transport
    }

    pub(crate) fn grace_time(&self) -> Option<Duration> {
        self.config.grace_time
    }

    pub(crate) fn reloads(&self) -> watch::Receiver<u64> {
        self.reload.subscribe()
    }

    /// Changes of the state.
    pub(crate) fn changes(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// A peer's address, as its name leads to now.
    pub(crate) fn address(&self, peer: u32) -> Option<IpAddr> {
        self.names.address(self.node(peer))
    }

    /// Whether a fault separates this node from a peer.
    pub(crate) fn is_cut(&self, peer: u32) -> bool {
        self.faults.borrow().cut_peers.contains(&peer)
    }

    pub(crate) fn link(&self, peer: u32) -> ConnectionStatus {
        let links = &self.state.borrow().links;
        links.get(peer as usize).copied().unwrap_or(ConnectionStatus::Invalid)
    }

    /// The node in its fabric; `None` without a driver.
    pub(crate) fn fabric_node(&self) -> Option<NodeId> {
        self.driver.as_ref().and_then(|driver| driver.node)
    }

    /// Notes which node is at the other end. It counts once the link is connected.
    pub(crate) fn set_peer(&self, peer: u32, node: Option<NodeId>) {
        self.state.send_if_modified(|state| {
            match node {
                Some(node) => drop(state.peers.insert(peer, node)),
                None => drop(state.peers.remove(&peer)),
            }
            false
        });
    }

    pub(crate) fn set_link(&self, peer: u32, status: ConnectionStatus) {
        let is_changed = self.state.send_if_modified(|state| {
            let Some(link) = state.links.get_mut(peer as usize) else { return false };
            let is_changed = std::mem::replace(link, status) != status;
            if is_changed {
                self.tell_driver(state);
            }
            is_changed
        });
        if is_changed {
            self.log.line(&format!("node {peer} ({}): {status:?}", self.node(peer)));
        }
    }

    /// The service as it reports itself.
    pub(crate) fn report(&self) -> Node {
        let state = self.state.borrow().clone();
        let links = (0..).zip(&state.links).map(|(peer, status)| {
            let host = self.node(peer).to_owned();
            (peer, Connection { host, status: *status, changed: false })
        });
        Node {
            status: state.status,
            host: self.node(self.own).to_owned(),
            connections: links.collect::<BTreeMap<_, _>>(),
            changed: false,
            version: self.version.clone(),
            host_name: String::new(),
        }
    }

    /// Writes a line to the log.
    pub(crate) fn log(&self, text: &str) {
        self.log.line(text);
    }

    /// Lets programs know a state before anything else does.
    fn tell_driver(&self, state: &State) {
        let Some(driver) = &self.driver else { return };
        if let Err(error) = driver.publish(&state.to_report()) {
            self.log.line(&format!("programs cannot know the state: {error}"));
        }
    }

    pub(super) fn set_status(&self, status: NodeStatus) {
        self.state.send_modify(|state| {
            state.status = status;
            self.tell_driver(state);
        });
        self.log.line(status.name());
    }

    /// Enters a state, and stays in it as long as a fault says so.
    pub(super) async fn pass(&self, status: NodeStatus) {
        self.set_status(status);
        let mut faults = self.faults.clone();
        let is_over = |faults: &ImexState| faults.stuck_in.as_deref() != Some(status.name());
        // Without a driver there are no faults.
        let _ = faults.wait_for(is_over).await;
    }
}
