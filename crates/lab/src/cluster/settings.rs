//! The composition of a lab, stored in `lab.json` from `up` to `down`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use anyhow::Context as _;
use octavo_api::imex::ImexSettings;
use serde::{Deserialize, Serialize};

use crate::cluster::component::Component;
use crate::cluster::layout::Layout;
use crate::cluster::ports::Ports;
use crate::nodes::dynamic_mig::NodeDynamicMig;
use crate::nodes::owner::Owner;
use crate::real_node::RealNodeKind;

/// All facts that later commands need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// Whether `up` completed; an incomplete lab is never resumed.
    pub complete: bool,
    /// Start time of `up`, RFC 3339.
    pub started: String,
    /// Version of Kubernetes, `v1.36.3`; `None` if the lab built none of it.
    pub kubernetes: Option<String>,
    /// Its ports.
    pub ports: Ports,
    /// Programs of the control plane by name, `kubectl` included.
    pub control_plane: BTreeMap<String, Tool>,
    /// The `octavo` binary.
    pub octavo: PathBuf,
    /// The processes of the lab.
    pub components: Vec<Component>,
    /// Additional arguments of processes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more_args: BTreeMap<Component, Vec<String>>,
    /// Settings of Octavo's controller and of the simulated nodes' agents for IMEX.
    #[serde(default)]
    pub imex: ImexSettings,
    /// The simulated nodes, as requested.
    pub nodes: Vec<Node>,
    /// The real nodes; `None` without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub real: Option<RealNodes>,
}

/// The real nodes of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RealNodes {
    /// Folder with containerd, its shim and ctr.
    pub containerd: PathBuf,
    /// Index of the /24 network in 198.18.0.0/15 for the nodes and the API server, from 0.
    pub network: u16,
    /// The nodes. A node's number is its index in this list.
    pub nodes: Vec<Node>,
    /// Folder with the image of virtual machines, if the nodes are such; `None`: namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub virtual_machines: Option<PathBuf>,
}

/// A program with its leading arguments.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tool {
    /// The binary.
    pub program: PathBuf,
    /// Its leading arguments: the subcommand of a multi-call binary.
    pub args: Vec<String>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Node {
    /// Name of the node.
    pub name: String,
    /// The machine: a shipped name or the path of a description.
    pub machine: String,
    /// Index among the nodes of its machine, from 0.
    pub index: u32,
    /// Its GPUs that are opted in to dynamic MIG.
    #[serde(default)]
    pub dynamic_mig: NodeDynamicMig,
    /// The scheduler that allocates its devices.
    #[serde(default)]
    pub owner: Owner,
}

impl RealNodes {
    /// What the nodes are.
    pub fn kind(&self) -> RealNodeKind {
        match self.virtual_machines {
            None => RealNodeKind::Namespaces,
            Some(_) => RealNodeKind::VirtualMachine,
        }
    }
}

impl Settings {
    /// Address of the API server: on loopback, or on the bridge if nodes must reach it from their
    /// own namespaces.
    pub fn apiserver(&self) -> SocketAddrV4 {
        let address = self.real.as_ref().map_or(Ipv4Addr::LOCALHOST, RealNodes::gateway);
        SocketAddrV4::new(address, self.ports.apiserver)
    }

    /// All nodes, the simulated ones first.
    pub(crate) fn all_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().chain(self.real.iter().flat_map(|real| &real.nodes))
    }

    /// Reads a lab's settings; `None` without a lab.
    pub fn read(layout: &Layout) -> anyhow::Result<Option<Self>> {
        let path = layout.settings();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e).with_context(|| format!("read {}", path.display())),
        };
        let settings = serde_json::from_slice(&bytes).with_context(|| {
            format!(
                "{} is not from this version of Octavo: run `octavo lab down` first",
                path.display()
            )
        })?;
        Ok(Some(settings))
    }

    /// Replaces the file atomically.
    pub(crate) fn write(&self, layout: &Layout) -> anyhow::Result<()> {
        let path = layout.settings();
        // In the key folder, because the state folder itself may have no other files.
        let next = layout.pki_file("lab.json.next");
        let text = serde_json::to_vec_pretty(self).context("write the lab's settings as JSON")?;
        std::fs::write(&next, text)
            .and_then(|()| std::fs::rename(&next, &path))
            .with_context(|| format!("write {}", path.display()))
    }
}
