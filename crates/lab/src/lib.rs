//! A cluster on one machine: a real Kubernetes control plane and simulated GPU nodes.
//!
//! `octavo lab up` starts etcd, kube-apiserver, kube-controller-manager and kube-scheduler on
//! loopback, makes a folder of simulated hardware and a Node object for every node, and starts
//! three more processes: Octavo's scheduler, the simulated kubelets of all nodes, and the real
//! agents of all nodes, which speak to a simulated driver. `octavo lab down` leaves nothing behind, whatever has
//! crashed in between.
//!
//! ```text
//!  up ──> cluster ──> binaries    the control plane's programs, built once into a cache
//!            │  ├───> pki, kubeconfig, ports, settings
//!            │  ├───> start ────> component (command lines) ──> process (pid files)
//!            │  ├───> manifests   the chart's objects
//!            │  ├───> nodes ────> hardware (folders of simulated hardware)
//!            │  ├───> real_node   namespaces with a kubelet, containerd and an agent
//!            │  ├───> ready       waits for nodes and slices
//!            │  └───> keeper      where the lab is to end with who brought it up
//!  down ──> stop ───> process
//! ```
//!
//! Tests and benchmarks hold a [`Lab`]. The lab never links the programs that it starts.

#![forbid(unsafe_code)]

mod apply;
mod args;
mod binaries;
mod cluster;
mod command;
mod component;
mod driver_libraries;
mod dynamic_mig;
mod gpu;
mod hardware;
mod kubeconfig;
mod kubelet;
mod layout;
mod lock;
mod logs;
mod manifests;
mod nodes;
mod nodeset;
mod octavo_scheduler;
mod output;
mod owner;
mod parent_watch;
mod pki;
mod ports;
mod process;
mod progress;
mod ready;
mod real_node;
mod settings;
mod start;
mod status;
mod stop;
mod tour;

pub use args::LabArgs;
pub use binaries::control_plane;
pub use cluster::{Lab, UpOptions};
pub use command::run;
pub use component::Component;
pub use dynamic_mig::{DynamicMig, DynamicMigError, Extent, NodeDynamicMig};
pub use layout::Layout;
pub use nodeset::{NodeSet, NodeSetError};
pub use octavo_scheduler::has_scheduler;
pub use owner::{Owner, Owners, OwnersError};
pub use ports::Ports;
pub use process::Process;
pub use progress::Progress;
pub use real_node::RealProgram;
pub use real_node::images::TOOLS_IMAGE;
pub use real_node::requirements::real_node_obstacle;
pub use real_node::set::{RealNodeSet, RealNodeSetError};
pub use settings::{Node, RealNodes, Settings, Tool};
