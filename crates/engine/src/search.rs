//! From a request to a plan: bounds, placement of pods and gangs, and preemption.

pub(crate) mod bounds;
pub mod fit;
pub mod pick;
pub mod plan;
pub mod planner;
pub mod pod_planner;
pub mod preemption;
pub mod solve;
