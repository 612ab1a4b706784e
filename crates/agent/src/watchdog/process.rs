//! Processes on the GPUs: the share that each belongs to, and the means to stop them.

pub(super) mod consumers;
pub(super) mod freezer;
pub(super) mod identity;
pub(super) mod kill;
pub(super) mod proc;
