//! Places pods, gangs and shares of GPUs.
//!
//! ```text
//! nodes, running pods --> cluster (columns, states, log) --> bounds ----> refusal with its proof
//!                         topology (domains as ranges)   \-> packing ---> placement of one pod
//!                         workloads                       \-> gang search, preemption --> plan, runner-up
//! ```
//!
//! A decision is a synchronous function of state and request: no clock, no randomness, no I/O.
//! Amounts are whole numbers. Powers and roots come from a portable library and are rounded to
//! whole numbers before they are compared. Ties go to the lower id. The same input gives the same
//! plan on every machine.
//!
//! The modules lie in the folders `model`, `search` and `policy` and are re-exported here.

#![forbid(unsafe_code)]

pub mod explain;
mod model;
mod policy;
mod search;
pub mod snapshot;

pub use model::{
    cluster, devices, gang, gpu, node, placement, resources, shape, topology, transaction, workload,
};
pub use policy::{fragmentation, objective, packing};
pub(crate) use search::bounds;
pub use search::{fit, pick, plan, planner, pod_planner, preemption, solve};

pub use cluster::{Cluster, ClusterError};
pub use gang::{Gang, Group};
pub use gpu::{GpuFree, GpuModel, ModelId, ModelSet};
pub use node::{NodeId, NodeSpec};
pub use objective::{CostTerm, CostVector};
pub use packing::{Choice, Packing};
pub use placement::{GpuPart, Placement};
pub use plan::{Plan, PlanResult, Reason, Refusal};
pub use resources::Resources;
pub use shape::{GpuDemand, Shape};
pub use topology::{DomainId, LevelId, Topology};
pub use workload::{Workload, Workloads};

impl AsMut<Cluster> for World {
    fn as_mut(&mut self) -> &mut Cluster {
        &mut self.cluster
    }
}

/// The cluster as decisions see it.
#[derive(Clone, Debug)]
pub struct World {
    /// Nodes and their free capacity.
    pub cluster: Cluster,
    /// Domains of the nodes.
    pub topology: Topology,
    /// Running workloads.
    pub workloads: Workloads,
}
