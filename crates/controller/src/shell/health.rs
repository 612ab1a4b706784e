//! The health of GPUs in the process: watches, rounds of plans and their writes, and evictions.
//!
//! A round plans all policies, since most of what is decided is a budget of many nodes. Changes are planned together, at most once a
//! second.

mod departures;
mod evict;
mod notices;
mod remediations;
mod round;
#[cfg(test)]
mod tests;
mod watches;
mod writes;

use std::collections::BTreeMap;

use kube::Client;
use octavo_api::names::CONTROLLER;
use octavo_kube_io::events::Events;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::leader::Leader;
use super::spawn;
use crate::config::HealthConfig;
use crate::health::remediation::Remediations;
use departures::Reader;
use evict::Evictor;
use notices::Announcer;
use remediations::Remediator;
use round::{Outputs, Rounds};

/// Findings that wait for a round.
const FINDINGS: usize = 1024;

/// Starts all of it, until `stop`.
pub(super) fn start(
    reading: &Client,
    writing: &Client,
    identity: &str,
    leader: Leader,
    config: &HealthConfig,
    stop: &CancellationToken,
) {
    let changes = watches::watch(reading, stop);
    let (departures, wanted) = watch::channel(BTreeMap::new());
    let (notices, wanted_notices) = watch::channel(Vec::new());
    let (findings, found) = mpsc::channel(FINDINGS);
    let (remediations, wanted_remediations) = watch::channel(Remediations::new());
    let outputs = Outputs { departures, notices, remediations };
    let rounds = Rounds::new(writing.clone(), leader.clone(), outputs, config.repair.clone());
    spawn(stop, rounds.run(changes, found));
    let events = Events::new(writing.clone(), CONTROLLER, identity);
    let evictor = Evictor::new(writing.clone(), events.clone(), leader.clone());
    spawn(stop, Reader::new(evictor, findings.clone()).run(wanted));
    let remediator = Remediator::new(writing.clone(), leader.clone(), findings.clone());
    spawn(stop, remediator.run(wanted_remediations));
    let announcer = Announcer::new(writing.clone(), events, leader, findings);
    spawn(stop, announcer.run(wanted_notices));
}
