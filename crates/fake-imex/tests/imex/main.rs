//! Domains of several services: in this process, and as programs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests may fail loudly")]

mod domain;
mod faults;
mod programs;
mod tls;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use octavo_fake_gpu::NodeId;
use octavo_fake_gpu::locate::MachineLocation;
use octavo_fake_imex::config::{CommandAddress, Quorum};
use octavo_fake_imex::status::{ConnectionStatus, Domain, Node, NodeStatus};
use octavo_fake_imex::{Config, Daemon, Environment, command};
use octavo_machine::Machine;

/// Description of a machine with an NVLink fabric.
const MACHINE: &str = include_str!("../../../../machines/gb200-tray.yaml");

/// A domain in a folder: node `n` is `node-<n>` at 127.0.0.<n + 10>.
pub(crate) struct Rack {
    folder: tempfile::TempDir,
    port: u16,
    command_port: u16,
}

impl Rack {
    /// A list of this many nodes, all of them in the hosts file.
    pub(crate) fn new(nodes: u8) -> Self {
        let rack = Self {
            folder: tempfile::tempdir().unwrap(),
            port: free_port(),
            command_port: free_port(),
        };
        let list: Vec<String> = (0..nodes).map(|node| format!("node-{node}")).collect();
        fs::write(rack.path("nodes.cfg"), list.join("\n")).unwrap();
        rack.write_hosts(0..nodes);
        rack
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Address of a node.
    pub(crate) fn address(node: u8) -> IpAddr {
        Ipv4Addr::new(127, 0, 0, node + 10).into()
    }

    /// Writes the hosts file with these nodes.
    pub(crate) fn write_hosts(&self, nodes: impl IntoIterator<Item = u8>) {
        let line = |node| format!("{} node-{node}\n", Self::address(node));
        let text: String = nodes.into_iter().map(line).collect();
        fs::write(self.path("hosts"), text).unwrap();
    }

    /// The config of a node.
    pub(crate) fn config(&self, node: u8) -> Config {
        Config {
            address: Some(Self::address(node)),
            port: self.port,
            nodes_file: self.path("nodes.cfg"),
            quorum: Quorum::Recovery,
            grace_time: None,
            tls: None,
            commands: vec![self.command_address(node)],
            log_file: Some(self.path("log")),
            is_log_kept: true,
        }
    }

    pub(crate) fn command_address(&self, node: u8) -> CommandAddress {
        CommandAddress::Tcp(SocketAddr::new(Self::address(node), self.command_port))
    }

    /// The machine of a node.
    pub(crate) fn machine(&self, node: u8) -> PathBuf {
        let folder = self.path(&format!("machine-{node}"));
        if !folder.exists() {
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("machine.yaml"), MACHINE).unwrap();
        }
        folder
    }

    /// A node in its fabric.
    pub(crate) fn fabric_node(&self, node: u8) -> NodeId {
        let mut machine = Machine::parse(MACHINE).unwrap();
        machine.instantiate(&self.machine(node).canonicalize().unwrap().to_string_lossy());
        NodeId::of(&machine).unwrap()
    }

    /// Sets the faults of a node: the text of `imex` in `state.json`.
    pub(crate) fn set_faults(&self, node: u8, imex: &str) {
        let next = self.machine(node).join("next");
        fs::write(&next, format!("{{\"imex\": {imex}}}")).unwrap();
        fs::rename(next, self.machine(node).join("state.json")).unwrap();
    }

    pub(crate) fn environment(&self, node: u8) -> Environment {
        let machine = MachineLocation { folder: self.machine(node), devices: None };
        Environment { hosts: self.path("hosts"), machine: Some(machine) }
    }

    /// Starts a node.
    pub(crate) async fn start(&self, node: u8) -> Daemon {
        self.start_with(self.config(node), node).await
    }

    pub(crate) async fn start_with(&self, config: Config, node: u8) -> Daemon {
        Daemon::start(config, &self.environment(node)).await.unwrap()
    }

    /// Why a node does not start.
    pub(crate) async fn refusal(&self, config: Config, node: u8) -> String {
        match Daemon::start(config, &self.environment(node)).await {
            Ok(_) => panic!("it starts"),
            Err(error) => format!("{error:#}"),
        }
    }

    /// A node's report.
    pub(crate) async fn report(&self, node: u8) -> Node {
        command::status(&self.command_address(node)).await.unwrap()
    }

    /// State of a node's connection to another.
    pub(crate) async fn link(&self, from: u8, to: u8) -> ConnectionStatus {
        self.report(from).await.connections[&u32::from(to)].status
    }

    /// Waits for the state of a connection.
    pub(crate) async fn wait_for_link(&self, from: u8, to: u8, status: ConnectionStatus) {
        eventually(&format!("{from} to {to} is {status:?}"), async || {
            self.link(from, to).await == status
        })
        .await;
    }

    pub(crate) async fn wait_until_ready(&self, node: u8) {
        eventually(&format!("node {node} is ready"), async || {
            self.report(node).await.status == NodeStatus::Ready
        })
        .await;
    }

    /// The domain, as a node with this config asks for it.
    pub(crate) async fn domain(&self) -> Domain {
        command::domain(&self.config(0), &self.path("hosts")).await.unwrap()
    }
}

/// Waits for a condition; panics if it does not hold within half a minute.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !condition().await {
        assert!(Instant::now() < until, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A port that is free on the loopback.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Writes a node's config file.
pub(crate) fn write_config(path: &Path, config: &Config) {
    let [CommandAddress::Tcp(command)] = config.commands[..] else { panic!("a port") };
    let text = format!(
        "BIND_INTERFACE_IP={}\nSERVER_PORT={}\nIMEX_NODE_CONFIG_FILE={}\nIMEX_CMD_ENABLED=1\n\
         IMEX_CMD_BIND_INTERFACE_IP={}\nIMEX_CMD_PORT={}\n",
        config.address.unwrap(),
        config.port,
        config.nodes_file.display(),
        command.ip(),
        command.port()
    );
    fs::write(path, text).unwrap();
}
