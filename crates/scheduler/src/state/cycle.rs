//! The scheduling cycle: one entry at a time, from its request to a place.
//!
//! ```text
//!   wake -> decide: single_pod or gang -> engine, within budgets -> reserve -> bind or nominate
//!                                            |   '-> verify: do victims make the place free?
//!                                            '-> refused: why (infeasible_nodes), and what it waits for
//! ```

pub(super) mod arrivals;
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
pub(super) mod seconds_at_risk;
pub(super) mod single_pod;
pub(super) mod verify;
pub(super) mod victims;
pub(super) mod wake;
