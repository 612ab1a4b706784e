//! Real nodes: kubelet, containerd, runc, and the agent as the chart's pod. Tests use them if a
//! process in a container must see its devices. Only the driver below the agent is simulated.
//!
//! A node is a process in its own network, pid and mount namespaces. Default paths and sockets
//! therefore work beside other nodes and beside the machine's own programs. One SIGKILL ends the
//! whole node and leaves no mount:
//!
//! ```text
//!  the machine's namespaces                    the node's
//!
//!  bridge octavo-<lab> ── ov<lab>-<n> ════════ eth0
//!  unshare ─────────────── is killed with ───> init (this program) ──> containerd ──> shims, containers
//!                                                    └───────────────> kubelet
//! ```
//!
//! | file | content |
//! |---|---|
//! | `set` | the requested real nodes |
//! | `requirements` | requirements on the machine |
//! | `host_network` | the bridge, and a veth pair to each node |
//! | `cgroups` | one folder per hierarchy |
//! | `images`, `registry` | container images, packed on this machine, and their server |
//! | `agent_pod` | the chart's `DaemonSet`, with the simulated kernel files |
//! | `config` | config files of the node's programs |
//! | `launch` | starting and finding a node from outside |
//! | `init`, `mounts`, `node_network` | setup within the namespaces |
//! | `virtual_machine` | a node that is a machine of its own, emulated by QEMU |
//!
//! Objects outside of a node's namespaces (bridge, cgroups, files) are named after the state
//! folder. So [`remove`] finds them even if nothing else of the lab is left.

use std::net::Ipv4Addr;

use sha2::{Digest as _, Sha256};

use crate::cluster::layout::Layout;
use crate::cluster::settings::{Node, RealNodes, Settings};

pub(crate) mod agent_pod;
pub(crate) mod cgroups;
pub(crate) mod config;
mod dockerfile;
pub(crate) mod host_network;
pub(crate) mod images;
pub(crate) mod init;
pub(crate) mod launch;
mod mounts;
mod node_network;
pub(crate) mod registry;
pub(crate) mod requirements;
pub(crate) mod set;
mod tool;
pub(crate) mod virtual_machine;

/// What a real node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum RealNodeKind {
    /// Namespaces of this machine.
    #[default]
    Namespaces,
    /// A virtual machine.
    VirtualMachine,
}

/// A program of a real node. The node restarts it when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RealProgram {
    /// containerd.
    Containerd,
    /// The kubelet.
    Kubelet,
}

impl RealProgram {
    /// All, in the order in which they start.
    pub const ALL: [Self; 2] = [Self::Containerd, Self::Kubelet];

    /// Its name in logs and messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
        }
    }
}

/// One real node of a lab, with the settings that apply to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeContext<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) settings: &'a Settings,
    pub(crate) real: &'a RealNodes,
    pub(crate) node: &'a Node,
    /// Index of the node among the lab's real nodes, from 0.
    pub(crate) number: u8,
}

impl NodeContext<'_> {
    /// Its address on the bridge.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.real.address(self.number)
    }

    /// Whether it is a virtual machine, and not a set of namespaces.
    pub(crate) fn is_virtual_machine(&self) -> bool {
        self.real.virtual_machines.is_some()
    }

    /// Path of its cgroup in every hierarchy.
    pub(crate) fn cgroup(&self) -> String {
        format!("/{}/{}", cgroups::folder(self.layout), self.node.name)
    }
}

/// The real nodes of a lab.
pub(crate) fn node_contexts<'a>(
    layout: &'a Layout,
    settings: &'a Settings,
) -> impl Iterator<Item = NodeContext<'a>> {
    settings.real.iter().flat_map(move |real| {
        (0_u8..).zip(&real.nodes).map(move |(number, node)| NodeContext {
            layout,
            settings,
            real,
            node,
            number,
        })
    })
}

/// Removes the objects outside of the namespaces of ended nodes: bridge, veth pairs, cgroups.
pub(crate) async fn remove(layout: &Layout) -> anyhow::Result<()> {
    virtual_machine::remove_pid_files(layout);
    host_network::remove(layout)?;
    cgroups::remove(layout).await
}

/// Whether a lab's real nodes have left objects outside of its state folder.
pub(crate) fn has_leftovers(layout: &Layout) -> bool {
    host_network::has_leftovers(layout) || cgroups::has_leftovers(layout)
}

/// Eight hex digits derived from the state folder. They make names unique on this machine.
fn lab_id(layout: &Layout) -> String {
    let digest = Sha256::digest(layout.root().as_os_str().as_encoded_bytes());
    digest.iter().take(4).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests;
