//! The core with objects as the API serves them, and an API server's part played by hand.

mod claims;
mod gangs;
mod kit;
mod leadership;
mod left_out;
mod pods;
mod preemption;
mod replay;
