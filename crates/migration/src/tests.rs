//! Tables of fields, refusals and workloads; properties; templates as the scheduler reads them.

#![expect(clippy::needless_pass_by_value, reason = "tables write their values in place")]

mod admission;
mod allocation;
mod fields;
mod files;
mod fixtures;
mod properties;
mod refusals;
mod workloads;
