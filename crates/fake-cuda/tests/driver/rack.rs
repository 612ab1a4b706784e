//! Two simulated nodes of one fabric, and their IMEX services.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use octavo_fake_gpu::NodeId;
use octavo_fake_gpu::imex::ServiceReport;
use octavo_fake_gpu::locate::MachineLocation;
use octavo_fake_imex::{Config, Daemon, Environment};
use octavo_machine::Machine;

use crate::node::Node;

/// Two nodes of one fabric.
pub(crate) struct Rack {
    pub(crate) first: Node,
    pub(crate) second: Node,
}

impl Rack {
    pub(crate) fn new() -> Self {
        let (first, second) = (Node::new("gb200-tray"), Node::new("gb200-tray"));
        let fabric = first.folder.path().join("fabric");
        fs::create_dir(&fabric).unwrap();
        symlink(fabric, second.folder.path().join("fabric")).unwrap();
        let (port, command_port) = (free_port(), free_port());
        for (index, node) in [&first, &second].into_iter().enumerate() {
            let folder = node.folder.path();
            fs::write(folder.join("nodes.cfg"), "127.0.0.10\n127.0.0.11\n").unwrap();
            let address = format!("127.0.0.1{index}");
            let text = format!(
                "BIND_INTERFACE_IP={address}\nSERVER_PORT={port}\nIMEX_CMD_ENABLED=1\n\
                 IMEX_CMD_BIND_INTERFACE_IP={address}\nIMEX_CMD_PORT={command_port}\n\
                 IMEX_NODE_CONFIG_FILE={}\nIMEX_NODE_DISCONNECTED_GRACE_TIME=1\n\
                 LOG_FILE_NAME={}\n",
                folder.join("nodes.cfg").display(),
                folder.join("log").display()
            );
            fs::write(folder.join("imexd.cfg"), text).unwrap();
        }
        Self { first, second }
    }

    /// Both services, connected.
    pub(crate) async fn connected(&self) -> [Daemon; 2] {
        let services =
            [start(self.first.folder.path()).await, start(self.second.folder.path()).await];
        self.wait_until_reached(true).await;
        services
    }

    /// Waits until the second node reaches the first one, or does no more.
    pub(crate) async fn wait_until_reached(&self, is_reached: bool) {
        let node = fabric_node(&self.first);
        eventually(|| ServiceReport::read(self.second.folder.path()).reaches(node) == is_reached)
            .await;
    }
}

/// Starts the service of the machine in a folder.
pub(crate) async fn start(machine: &Path) -> Daemon {
    let location = MachineLocation { folder: machine.to_owned(), devices: None };
    let environment = Environment { hosts: machine.join("hosts"), machine: Some(location) };
    let config = Config::read(&machine.join("imexd.cfg")).unwrap();
    Daemon::start(config, &environment).await.unwrap()
}

/// Gives the programs of a node device nodes: those of its first GPU, and these channels.
pub(crate) fn set_channels(node: &Node, channels: &[u32]) {
    let devices = node.folder.path().join("dev");
    let folder = devices.join("nvidia-caps-imex-channels");
    // There may be none yet.
    let _ = fs::remove_dir_all(&devices);
    fs::create_dir_all(&folder).unwrap();
    for name in ["nvidiactl", "nvidia-uvm", "nvidia0"] {
        fs::write(devices.join(name), "").unwrap();
    }
    for channel in channels {
        fs::write(folder.join(format!("channel{channel}")), "").unwrap();
    }
}

pub(crate) fn fabric_node(node: &Node) -> NodeId {
    let folder = node.folder.path().canonicalize().unwrap();
    let mut machine = Machine::read(&folder.join("machine.yaml")).unwrap();
    machine.instantiate(&folder.to_string_lossy());
    NodeId::of(&machine).unwrap()
}

/// Number of files in the fabric's folder.
pub(crate) fn memory_files(rack: &Rack) -> usize {
    fs::read_dir(rack.second.folder.path().join("fabric")).unwrap().count()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(crate) async fn eventually(mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < until, "not in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
