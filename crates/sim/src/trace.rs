//! Reading a trace: the nodes of a cluster and its arriving pods.
//!
//! The format is that of openb, the trace of a cluster of 6,212 GPUs that Weng et al. published
//! with "Beware of Fragmentation" (USENIX ATC 2023). It consists of two CSV files. Columns are
//! found by the names in the first line. Other columns than those below are ignored. Lines that
//! start with `#` are comments.
//!
//! Reading any file gives rows or a [`TraceError`] with file, line and column. Rows never hold an
//! impossible value, so later code does not check them again.

use std::fs::File;
use std::io::Read;
use std::path::Path;

mod error;
mod lines;
mod models;
mod nodes;
mod pods;
mod table;
#[cfg(test)]
mod tests;

pub use error::TraceError;
pub use models::KNOWN_MODELS;

/// Thousandths of a GPU that one GPU has.
pub const GPU_MILLI: u32 = 1000;

/// A node of the cluster: a line of a node list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRow {
    /// Unique in the list (`sn`).
    pub name: String,
    /// Thousandths of a core (`cpu_milli`), at most ten thousand cores.
    pub cpu_milli: u64,
    /// MiB (`memory_mib`), at most a PiB.
    pub memory_mib: u64,
    /// Number of whole GPUs (`gpu`), at most 1,024.
    pub gpus: u32,
    /// Model of all its GPUs (`model`); never empty for a node with GPUs.
    pub model: String,
}

/// A pod: a line of a pod list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PodRow {
    /// Unique in the list.
    pub name: String,
    /// Thousandths of a core, at most ten thousand cores.
    pub cpu_milli: u64,
    /// MiB, at most a PiB.
    pub memory_mib: u64,
    /// How many GPUs, each of which gives `gpu_milli`; at most 1,024.
    pub num_gpu: u32,
    /// Thousandths of each of its GPUs: 1 to 1000, and 0 only where `num_gpu` is 0.
    pub gpu_milli: u32,
    /// Accepted GPU models (`gpu_spec`), sorted and unique. Empty means any model, or no GPU.
    pub models: Vec<String>,
    /// Quality of service as listed: `LS`, `BE`, `Burstable`, `Guaranteed`, or empty.
    pub qos: String,
    /// Phase the pod ended in (`pod_phase`), or empty.
    pub phase: String,
    /// Seconds since the start of the trace, if listed.
    pub creation_time: Option<u64>,
    /// Seconds since the start of the trace, if listed; never before `creation_time`.
    pub deletion_time: Option<u64>,
    /// Seconds since the start of the trace; `None` for pods that were never scheduled.
    pub scheduled_time: Option<u64>,
}

impl NodeRow {
    /// Thousandths of GPUs that the node has.
    pub fn gpu_milli(&self) -> u64 {
        u64::from(self.gpus) * u64::from(GPU_MILLI)
    }
}

impl PodRow {
    /// Thousandths of GPUs that the pod asks for in all.
    pub fn total_gpu_milli(&self) -> u64 {
        u64::from(self.num_gpu) * u64::from(self.gpu_milli)
    }

    /// Whether the pod accepts GPUs of this model.
    pub fn is_allowed_on(&self, model: &str) -> bool {
        self.models.is_empty() || self.models.iter().any(|allowed| allowed == model)
    }
}

/// A cluster and its arriving pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// At least one, in the order of the list.
    pub nodes: Vec<NodeRow>,
    /// At least one, in the order of the list.
    pub pods: Vec<PodRow>,
}

impl Trace {
    /// Reads a node list and a pod list.
    pub fn read(nodes: &Path, pods: &Path) -> Result<Self, TraceError> {
        let nodes = read_nodes(nodes)?;
        let pods = read_pods(pods, &nodes)?;
        Ok(Self { nodes, pods })
    }

    /// Thousandths of GPUs that the cluster has.
    pub fn capacity_gpu_milli(&self) -> u64 {
        self.nodes.iter().map(NodeRow::gpu_milli).sum()
    }

    /// Thousandths of GPUs that all pods of the list ask for.
    pub fn demand_gpu_milli(&self) -> u64 {
        self.pods.iter().map(PodRow::total_gpu_milli).sum()
    }
}

/// Reads a node list.
pub fn read_nodes(path: &Path) -> Result<Vec<NodeRow>, TraceError> {
    nodes_from(open(path)?, &path.display().to_string())
}

/// Reads a pod list for a cluster of these nodes.
pub fn read_pods(path: &Path, nodes: &[NodeRow]) -> Result<Vec<PodRow>, TraceError> {
    pods_from(open(path)?, &path.display().to_string(), nodes)
}

/// Reads a node list from any source. Errors call it `file`.
pub fn nodes_from(reader: impl Read, file: &str) -> Result<Vec<NodeRow>, TraceError> {
    nodes::read(reader, file)
}

/// Reads a pod list from any source. Errors call it `file`. Valid GPU models are those of the nodes
/// and [`KNOWN_MODELS`].
pub fn pods_from(
    reader: impl Read,
    file: &str,
    nodes: &[NodeRow],
) -> Result<Vec<PodRow>, TraceError> {
    pods::read(reader, file, nodes)
}

fn open(path: &Path) -> Result<File, TraceError> {
    File::open(path).map_err(|source| TraceError::Io { file: path.display().to_string(), source })
}
