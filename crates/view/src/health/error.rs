//! Errors of `octavo health`.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A failure of `octavo health` that is not one of reading the cluster.
#[derive(Debug, Error)]
pub enum HealthError {
    /// The cluster does not serve `NodeHealth`.
    #[error("the cluster has no CustomResourceDefinition of NodeHealth (octavo.dev/v1alpha1)")]
    NoDefinition,
    /// A node without a `NodeHealth`.
    #[error("node {node:?} has no NodeHealth")]
    NoNode {
        /// Its name.
        node: String,
        /// Nodes that have one.
        known: Vec<String>,
    },
    /// A `NodeHealth` of another version.
    #[error("the NodeHealth of node {node:?} cannot be parsed: {message}")]
    Unreadable {
        /// The node.
        node: String,
        /// Where and why.
        message: String,
    },
    /// A GPU that the node does not have.
    #[error("node {node:?} has no GPU {gpu:?}")]
    NoGpu {
        /// The node.
        node: String,
        /// What was asked for.
        gpu: String,
        /// Its GPUs.
        known: Vec<String>,
    },
    /// A UUID that no node has.
    #[error("no NodeHealth has the GPU {uuid:?}")]
    NoUuid {
        /// What was asked for.
        uuid: String,
    },
    /// A word that names no GPU.
    #[error("{words:?} does not name a GPU")]
    NoName {
        /// What was asked for.
        words: String,
    },
    /// A policy that does not exist.
    #[error("there is no HealthPolicy {name:?}")]
    NoPolicy {
        /// Its name.
        name: String,
        /// Those that exist.
        known: Vec<String>,
    },
    /// An order that has to be confirmed, where nothing can be asked.
    #[error("this has to be confirmed, and standard input is no terminal")]
    Unconfirmed,
    /// The answer was no.
    #[error("nothing was ordered")]
    Declined,
    /// An order that the API server did not take.
    #[error("the order for node {node:?} could not be written: {message}")]
    NotWritten {
        /// The node.
        node: String,
        /// HTTP status.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// A file that could not be read.
    #[error("{} could not be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file that is no YAML.
    #[error("{} cannot be parsed: {message}", path.display())]
    Yaml {
        /// The file.
        path: PathBuf,
        /// Where and why.
        message: String,
    },
}

impl HealthError {
    /// Whether the command line was wrong, and not the cluster.
    pub(crate) fn is_usage(&self) -> bool {
        matches!(self, Self::NoName { .. } | Self::Unconfirmed)
    }

    /// What the user can do about the error.
    pub(crate) fn hint(&self) -> Option<String> {
        let one_of = |what: &str, known: &[String]| format!("{what}: {}", known.join(", "));
        match self {
            Self::NoDefinition => {
                Some("`octavo upgrade` installs the definitions of its version".to_owned())
            }
            Self::NoNode { known, .. } if known.is_empty() => Some(
                "no node has one: `octavo doctor` says whether agents run, which write them"
                    .to_owned(),
            ),
            Self::NoNode { known, .. } => Some(one_of("nodes that have one", known)),
            Self::Unreadable { .. } => {
                Some("use the octavo of the agents' version (`octavo version`)".to_owned())
            }
            Self::NoGpu { known, .. } if known.is_empty() => {
                Some("its agent has reported no GPU yet".to_owned())
            }
            Self::NoGpu { known, .. } => Some(one_of("its GPUs are", known)),
            Self::NoUuid { .. } => {
                Some("`octavo health --all -o wide` lists the UUIDs of all GPUs".to_owned())
            }
            Self::NoName { .. } => Some(
                "write NODE/GPU, such as gpu-node-7/gpu-0 or gpu-node-7/0, or the UUID of the GPU"
                    .to_owned(),
            ),
            Self::NoPolicy { known, .. } if known.is_empty() => {
                Some("the cluster has none".to_owned())
            }
            Self::NoPolicy { known, .. } => Some(one_of("those that exist are", known)),
            Self::Unconfirmed => Some("add --yes if it is meant".to_owned()),
            Self::NotWritten { code: 403, .. } => {
                Some("ask an administrator for the right to patch nodehealths".to_owned())
            }
            Self::NotWritten { code: 409, .. } => {
                Some("the object changes often at the moment: try again".to_owned())
            }
            Self::Declined | Self::NotWritten { .. } | Self::File { .. } | Self::Yaml { .. } => {
                None
            }
        }
    }
}
