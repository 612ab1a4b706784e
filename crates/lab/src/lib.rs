//! A cluster on one machine: a real Kubernetes control plane and simulated GPU nodes.
//!
//! `octavo lab up` starts etcd, kube-apiserver, kube-controller-manager and kube-scheduler on
//! loopback. It creates a folder of simulated hardware and a Node object for every node. Then it
//! starts three more processes: Octavo's scheduler, the simulated kubelets of all nodes, and the
//! real agents of all nodes, which use a simulated driver. `octavo lab down` leaves nothing behind,
//! even after a crash.
//!
//! ```text
//!  up ──> cluster::lab ──> binaries      the control plane's programs, built once into a cache
//!              │  ├───> pki, kubeconfig, ports, settings
//!              │  ├───> start ────> component (command lines) ──> process (pid files)
//!              │  ├───> manifests     the chart's objects
//!              │  ├───> provision ──> hardware (folders of simulated hardware)
//!              │  ├───> real_node     namespaces with a kubelet, containerd and an agent
//!              │  ├───> ready         waits for nodes and slices
//!              │  └───> parent_watch  ends the lab with the process that started it
//!  down ──> stop ───> process
//!  chaos ─> faults on the running lab, and invariants read from its API server
//! ```
//!
//! Tests and benchmarks use a [`Lab`]. The lab never links the programs that it starts.

#![forbid(unsafe_code)]

mod chaos;
mod cli;
mod cluster;
mod kubelet;
mod nodes;
mod real_node;

pub use cli::args::LabArgs;
pub use cli::command::run;
pub use cli::progress::Progress;
pub use cluster::binaries::{containerd, oracles};
pub use cluster::component::Component;
pub use cluster::layout::Layout;
pub use cluster::octavo_scheduler::has_scheduler;
pub use cluster::ports::Ports;
pub use cluster::process::Process;
pub use cluster::settings::{Node, RealNodes, Settings, Tool};
pub use cluster::{Lab, UpOptions};
pub use nodes::dynamic_mig::{DynamicMig, DynamicMigError, Extent, NodeDynamicMig};
pub use nodes::hardware::catalogue::shipped_machines;
pub use nodes::nodeset::{NodeSet, NodeSetError};
pub use nodes::owner::{Owner, Owners, OwnersError};
pub use real_node::images::mpi::mpi_obstacle;
pub use real_node::images::{MPI_IMAGE, TOOLS_IMAGE};
pub use real_node::requirements::{real_node_obstacle, virtual_machine_obstacle};
pub use real_node::set::{RealNodeSet, RealNodeSetError};
pub use real_node::{RealNodeKind, RealProgram};
