//! Processes on the GPUs: finding the share of each, and stopping them.

pub(super) mod consumers;
pub(super) mod freezer;
pub(super) mod identity;
pub(super) mod kill;
pub(super) mod proc;
