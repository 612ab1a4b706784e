//! The scheduling cycle: one entry at a time, from its request to a place.
//!
//! ```text
//!   wake -> decide: single_pod or gang -> engine, within budgets -> reserve -> bind or nominate
//!                                            '-> refused: why (infeasible_nodes), and what it waits for
//! ```

pub(super) mod budgets;
pub(super) mod competing_demand;
pub(super) mod decide;
pub(super) mod feasible_nodes;
pub(super) mod gang;
pub(super) mod gang_request;
pub(super) mod infeasible_nodes;
pub(super) mod preferences;
pub(super) mod refusal_cache;
pub(super) mod reserve;
pub(super) mod single_pod;
pub(super) mod trial_preemption;
pub(super) mod wake;
