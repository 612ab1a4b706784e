//! The process around the plans: watches, the loop that plans, writes, and the lease.

mod event_loop;
mod leadership;
mod pod_reader;
mod queue;
mod requests;
mod run;
#[cfg(test)]
mod tests;
mod translation;
mod watches;
mod writer;

pub use run::run;
