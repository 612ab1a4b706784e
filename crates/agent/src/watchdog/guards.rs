//! What the guards of shares write and say: their state files, and the reports on their sockets.

pub(super) mod connection_quota;
pub(super) mod listener;
pub(super) mod reports;
pub(super) mod state_file;
