//! Input from guards: their state files, and the reports on their sockets.

pub(super) mod connection_quota;
pub(super) mod listener;
pub(super) mod reports;
pub(super) mod state_file;
