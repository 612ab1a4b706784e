//! The agent's interface to the kubelet: two sockets and the services on them.

pub(crate) mod endpoint;
pub(crate) mod health_stream;
pub(crate) mod plugin;
pub mod registration;
pub(crate) mod socket;
