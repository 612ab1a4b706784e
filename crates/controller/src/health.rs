//! The health of GPUs: which remedies may begin, which pods leave, and what becomes of policies.
//!
//! ```text
//! HealthPolicies, Nodes, NodeHealths --facts--> plan --> orders for agents: permits, evictions, copies of records
//!                                                |-----> status of policies
//!                                                |-----> devices whose pods are evicted --pods, checkpoints--> which pods, when and how
//!                                                |-----> these, and those that wait for the budget --notices--> events before pods leave
//! Maintenances ------------------------facts-----'-maintenance-> taints of nodes, nodes that are drained, notices
//! ```
//!
//! The agent of a node decides about its devices alone and at once. Here the same [`octavo_health::decide::Domain`] decides about all
//! nodes of a policy: what disturbs pods keeps to one budget and one circuit breaker. The records of devices are the agents'.
//! So a plan starts from the objects, and a controller that starts goes on where the last one stopped.

pub mod checkpoints;
mod condition;
pub mod departures;
pub mod facts;
pub mod lost_nodes;
pub mod maintenance;
pub mod notices;
pub mod plan;
pub mod pods;
pub mod remediation;
