//! What a lab is made of, as `lab.json` keeps it from `up` to `down`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::cluster::component::Component;
use crate::cluster::layout::Layout;
use crate::cluster::ports::Ports;
use crate::nodes::dynamic_mig::NodeDynamicMig;
use crate::nodes::owner::Owner;

/// Everything that a later command must know about a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// Whether `up` came to its end; a lab that is not complete is never taken up again.
    pub complete: bool,
    /// When `up` began, RFC 3339.
    pub started: String,
    /// Version of Kubernetes, `v1.36.3`; absent where all of it is somebody else's build.
    pub kubernetes: Option<String>,
    /// Ports on 127.0.0.1.
    pub ports: Ports,
    /// Programs of the control plane by name, `kubectl` included.
    pub control_plane: BTreeMap<String, Tool>,
    /// The `octavo` binary.
    pub octavo: PathBuf,
    /// Which processes belong to the lab.
    pub components: Vec<Component>,
    /// Arguments of processes beyond their own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more_args: BTreeMap<Component, Vec<String>>,
    /// The simulated nodes, as they were asked for.
    pub nodes: Vec<Node>,
    /// The real nodes; absent where there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<RealNodes>,
}

/// The real nodes of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RealNodes {
    /// Folder with containerd, its shim and ctr.
    pub containerd: PathBuf,
    /// Which network of 256 addresses in 198.18.0.0/15 the nodes and the API server have, from 0.
    pub network: u16,
    /// The nodes. The place in this list is a node's number.
    pub nodes: Vec<Node>,
}

/// A program with the arguments that stand before all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tool {
    /// The binary.
    pub program: PathBuf,
    /// Its first arguments: the subcommand, where many tools are one binary.
    pub args: Vec<String>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// The machine: a name that ships or the path of a description.
    pub machine: String,
    /// Which of the machines of its kind it is, from 0.
    pub index: u32,
    /// Which of its GPUs are opted in to dynamic MIG.
    #[serde(default)]
    pub dynamic_mig: NodeDynamicMig,
    /// Which scheduler gives its devices.
    #[serde(default)]
    pub owner: Owner,
}

impl Settings {
    /// Where the API server listens: on loopback, unless nodes must reach it from namespaces of
    /// their own.
    pub fn apiserver(&self) -> SocketAddrV4 {
        let address = self.real.as_ref().map_or(Ipv4Addr::LOCALHOST, RealNodes::gateway);
        SocketAddrV4::new(address, self.ports.apiserver)
    }

    /// The names of all nodes, the simulated ones first.
    pub(crate) fn all_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().chain(self.real.iter().flat_map(|real| &real.nodes))
    }

    /// Reads a lab's settings; none where there is no lab.
    pub fn read(layout: &Layout) -> anyhow::Result<Option<Self>> {
        let path = layout.settings();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| format!("read {}", path.display())),
        };
        let settings = serde_json::from_slice(&bytes).with_context(|| {
            format!("{} is not one of this version: run `octavo lab down` first", path.display())
        })?;
        Ok(Some(settings))
    }

    /// Replaces the file in one step.
    pub(crate) fn write(&self, layout: &Layout) -> anyhow::Result<()> {
        let path = layout.settings();
        // In the key folder, because nothing else may lie in the state folder itself.
        let next = layout.pki_file("lab.json.next");
        let text = serde_json::to_vec_pretty(self).context("write the lab's settings as JSON")?;
        std::fs::write(&next, text)
            .and_then(|()| std::fs::rename(&next, &path))
            .with_context(|| format!("write {}", path.display()))
    }
}
