//! The core with objects as the API serves them, and an API server's part played by hand.

mod budgets;
mod changes;
mod claims;
mod doubt;
mod doubt_read;
mod gangs;
mod kit;
mod leading;
mod left_out;
mod others;
mod outside;
mod pods;
mod preemption;
mod remedy;
mod replay;
mod rules;
mod truth;
mod turns;
mod undo;
