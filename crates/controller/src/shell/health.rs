//! The health of GPUs in the process: watches, rounds of plans and their writes, and evictions.
//!
//! A round plans all policies, since most of what is decided is a budget of many nodes. Changes are planned together, at most once a
//! second.

mod evict;
mod round;
#[cfg(test)]
mod tests;
mod watches;

use kube::Client;
use octavo_api::names::CONTROLLER;
use octavo_kube_io::events::Events;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::leader::Leader;
use super::spawn;
use evict::Evictor;
use round::Rounds;

/// Starts all of it, until `stop`.
pub(super) fn start(
    reading: &Client,
    writing: &Client,
    identity: &str,
    leader: Leader,
    stop: &CancellationToken,
) {
    let changes = watches::watch(reading, stop);
    let (evictions, wanted) = watch::channel(Vec::new());
    let rounds = Rounds::new(writing.clone(), leader.clone(), evictions);
    spawn(stop, rounds.run(changes));
    let events = Events::new(writing.clone(), CONTROLLER, identity);
    spawn(stop, Evictor::new(writing.clone(), events, leader).run(wanted));
}
