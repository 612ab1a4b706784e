//! The scheduler state with objects as the API serves them. The tests play the API server.

mod budgets;
mod changes;
mod claims;
mod competing_demand;
mod fixtures;
mod gang_constraints;
mod gangs;
mod indeterminate;
mod indeterminate_relist;
mod infeasible_nodes;
mod leadership;
mod lost_nodes;
mod metric_events;
mod neighbours;
mod nomination;
mod pods;
mod policies;
mod preemption;
mod preemption_hint;
mod queue_fairness;
mod random_faults;
mod replay;
mod rollback;
mod unmodeled_nodes;
mod volumes;
mod wake;
