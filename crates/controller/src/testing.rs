//! For tests: an API server in memory for the kinds that the controller watches, and the daemons of its nodes.

mod daemons;
mod objects;
mod server;
mod writes;

pub(crate) use objects::{claim, config, domain, object, pod, read, read_with};
pub(crate) use server::Server;
