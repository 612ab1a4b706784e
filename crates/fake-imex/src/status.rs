//! States of nodes, connections and domains, by the names that `nvidia-imex-ctl` prints.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// State of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum NodeStatus {
    /// It has just begun.
    Initializing,
    /// It reads its keys.
    StartingAuthServer,
    /// It waits for the quorum.
    WaitingForPeers,
    /// It waits for peers of an earlier session.
    WaitingForRecovery,
    /// It opens the driver.
    InitGpu,
    /// Programs of this node may share memory with the peers that are connected.
    Ready,
    /// It ends.
    ShuttingDown,
    /// It does not answer.
    Unavailable,
}

/// State of a connection from one node to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ConnectionStatus {
    /// Not known, since the first node does not answer.
    Invalid,
    /// There was none yet.
    NeverConnected,
    /// It works.
    Connected,
    /// It is lost, and its memory is not yet given up.
    Recovering,
    /// It is lost for good.
    Disconnected,
    /// The drivers' versions differ.
    VersionMismatch,
    /// The lists of nodes differ.
    NodeMapMismatch,
}

/// State of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum DomainStatus {
    /// All nodes are ready and connected.
    Up,
    /// Some are.
    Degraded,
    /// None is ready.
    Down,
}

/// A connection, as the first node reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// The other node, as the list names it.
    pub host: String,
    /// Its state.
    pub status: ConnectionStatus,
    /// Whether it changed since the last report of a continuous watch.
    pub changed: bool,
}

/// A node, as it reports itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its state.
    pub status: NodeStatus,
    /// The node, as the list names it.
    pub host: String,
    /// Its connections by the index of the other node.
    pub connections: BTreeMap<u32, Connection>,
    /// Whether its state changed since the last report of a continuous watch.
    pub changed: bool,
    /// Version of its driver.
    pub version: String,
    /// Its host name, if it was asked for.
    pub host_name: String,
}

/// A domain: all nodes of a list, each asked for itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domain {
    /// Nodes by their index in the list.
    pub nodes: BTreeMap<u32, Node>,
    /// Time of the question: month/day/year hour:minute:second.
    pub timestamp: String,
    /// State of the whole.
    pub status: DomainStatus,
}

impl NodeStatus {
    /// The name, as the command prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Initializing => "INITIALIZING",
            Self::StartingAuthServer => "STARTING_AUTH_SERVER",
            Self::WaitingForPeers => "WAITING_FOR_PEERS",
            Self::WaitingForRecovery => "WAITING_FOR_RECOVERY",
            Self::InitGpu => "INIT_GPU",
            Self::Ready => "READY",
            Self::ShuttingDown => "SHUTTING_DOWN",
            Self::Unavailable => "UNAVAILABLE",
        }
    }
}

impl ConnectionStatus {
    /// The letter of the table.
    pub fn letter(self) -> &'static str {
        match self {
            Self::Invalid => "I",
            Self::NeverConnected => "N",
            Self::Connected => "C",
            Self::Recovering => "R",
            Self::Disconnected => "D",
            Self::VersionMismatch => "!V!",
            Self::NodeMapMismatch => "!M!",
        }
    }
}

impl DomainStatus {
    /// The state of a domain with these nodes.
    pub fn of(nodes: &BTreeMap<u32, Node>) -> Self {
        let is_ready = |node: &Node| node.status == NodeStatus::Ready;
        let is_connected = |link: &Connection| link.status == ConnectionStatus::Connected;
        let is_up = |node: &Node| is_ready(node) && node.connections.values().all(is_connected);
        if !nodes.is_empty() && nodes.values().all(is_up) {
            Self::Up
        } else if nodes.values().any(is_ready) {
            Self::Degraded
        } else {
            Self::Down
        }
    }
}

impl fmt::Display for DomainStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Up => "UP",
            Self::Degraded => "DEGRADED",
            Self::Down => "DOWN",
        })
    }
}
