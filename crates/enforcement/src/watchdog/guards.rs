//! Input from guards: their state files, and the reports on their sockets.

pub(crate) mod connection_quota;
pub(crate) mod listener;
pub(crate) mod reports;
pub(super) mod state_file;
