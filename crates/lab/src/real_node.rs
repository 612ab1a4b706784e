//! Real nodes: kubelet, containerd, runc and the real agent, for tests in which a process in a
//! container must see what it was promised. Only the driver below the agent is simulated.
//!
//! A node is a process in namespaces of its own (network, process ids, mounts), so that every
//! default path and socket works beside other nodes and beside what the machine itself runs, and so
//! that one SIGKILL ends all of it and leaves no mount:
//!
//! ```text
//!  the machine's namespaces                    the node's
//!
//!  bridge octavo-<lab> ── ov<lab>-<n> ════════ eth0
//!  unshare ─────────────── is killed with ───> init (this program) ──> containerd ──> shims, containers
//!                                                    │                 kubelet
//!                                                    └───────────────> agent
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `set` | which real nodes there are to be |
//! | `requirements` | what the machine must have |
//! | `network` | the bridge, and a cable to each node |
//! | `cgroups` | a folder in every hierarchy |
//! | `images` | what containers are made of, packed here |
//! | `config` | files that the node's programs read |
//! | `holder` | starting and finding a node, from outside |
//! | `init`, `mounts`, `inside` | what happens within the namespaces |
//!
//! What is left outside of a node's namespaces (bridge, cgroups, files) is named after the state
//! folder, so that [`remove`] finds it when nothing else of the lab is left.

use std::net::Ipv4Addr;

use sha2::{Digest as _, Sha256};

use crate::cluster::layout::Layout;
use crate::cluster::settings::{Node, RealNodes, Settings};

pub(crate) mod cgroups;
pub(crate) mod config;
pub(crate) mod host_network;
pub(crate) mod images;
pub(crate) mod init;
pub(crate) mod launch;
mod mounts;
mod node_network;
pub(crate) mod requirements;
pub(crate) mod set;
mod tool;

/// A program of a real node. When it ends it is started again, as on any node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RealProgram {
    /// containerd.
    Containerd,
    /// The kubelet.
    Kubelet,
    /// Octavo's agent.
    Agent,
}

impl RealProgram {
    /// All, in the order in which they start.
    pub const ALL: [Self; 3] = [Self::Containerd, Self::Kubelet, Self::Agent];

    /// Its name in logs and in what people see.
    pub fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Kubelet => "kubelet",
            Self::Agent => "agent",
        }
    }
}

/// One of a lab's real nodes and all that is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeContext<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) settings: &'a Settings,
    pub(crate) real: &'a RealNodes,
    pub(crate) node: &'a Node,
    /// Which of the lab's real nodes it is, from 0.
    pub(crate) number: u8,
}

impl NodeContext<'_> {
    /// Its address on the bridge.
    pub(crate) fn address(&self) -> Ipv4Addr {
        self.real.address(self.number)
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

/// Takes away what is outside of the namespaces of nodes that have ended: bridge, cables, cgroups.
pub(crate) async fn remove(layout: &Layout) -> anyhow::Result<()> {
    host_network::remove(layout)?;
    cgroups::remove(layout).await
}

/// Whether there is anything of a lab's real nodes outside of its state folder.
pub(crate) fn has_leftovers(layout: &Layout) -> bool {
    host_network::has_leftovers(layout) || cgroups::has_leftovers(layout)
}

/// Names what is a lab's own on this machine: eight digits that follow from its state folder.
fn lab_id(layout: &Layout) -> String {
    let digest = Sha256::digest(layout.root().as_os_str().as_encoded_bytes());
    digest.iter().take(4).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests;
