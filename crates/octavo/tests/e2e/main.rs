//! End to end: the real API server, controllers and scheduler, the real agent, and simulated
//! hardware. Every test starts its own lab and ends it, even on failure.

#![forbid(unsafe_code)]
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed"
)]

mod adoption;
mod chaos;
mod chart;
mod claims;
mod compute_domain_encryption;
mod compute_domain_faults;
mod compute_domain_losses;
mod compute_domain_modes;
mod compute_domain_pods;
mod compute_domain_real;
mod compute_domains;
mod device_plugin;
mod discover;
mod feature_labels;
mod gpu_sharing;
mod gpu_tests;
mod hardware;
mod health;
mod health_checkpoints;
mod health_maintenance;
mod health_reload;
mod health_template;
mod installation;
mod memory_enforcement;
mod memory_swap;
mod mig;
mod migrate_plan;
mod mpi;
mod nvidia_programs;
mod outages;
mod real_node;
mod rolling;
mod scheduler;
mod scheduler_faults;
mod scheduler_maintenance;
mod scheduler_repair;
mod scheduler_rules;
mod scheduler_spares;
mod share_settings;
mod shares;
mod static_mig;
mod testbed;
mod time_enforcement;
mod tour;
mod translation;
mod upgrade;
mod validate;
mod virtual_machine;
