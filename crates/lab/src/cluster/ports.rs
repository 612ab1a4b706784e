//! Free ports on loopback.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use anyhow::bail;
use serde::{Deserialize, Serialize};

/// Below the kernel's ephemeral range, so that no outgoing connection takes a port between two
/// starts of its component.
const RANGE: Range<u16> = 20_000..32_000;

/// Ports picked by this process. A port is free for a moment between its choice and the start of
/// its component. Another lab in the same process, as in tests, could otherwise pick it, too.
static PICKED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// The ports of a lab. All are on 127.0.0.1, unless real nodes reach them on their bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ports {
    /// etcd, for clients.
    pub etcd_client: u16,
    /// etcd, for peers; there are none.
    pub etcd_peer: u16,
    /// kube-apiserver.
    pub apiserver: u16,
    /// kube-controller-manager: health and metrics.
    pub controller_manager: u16,
    /// kube-scheduler: health and metrics.
    pub scheduler: u16,
    /// Octavo's scheduler: health and metrics.
    pub octavo_scheduler: u16,
    /// Octavo's controller: health and metrics.
    pub octavo_controller: u16,
    /// Octavo's controller: the webhook for pods of HAMi and KAI Scheduler.
    #[serde(default)]
    pub octavo_webhook: u16,
    /// The registry of images for real nodes, on their bridge.
    pub registry: u16,
}

impl Ports {
    /// Picks ports without a listener.
    pub(crate) fn pick() -> anyhow::Result<Self> {
        let mut picked = PICKED.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = free_ports(seed()).filter(|(port, _)| picked.insert(*port));
        // Held until all are chosen, so that they differ.
        let mut held = Vec::new();
        let mut next = || match free.next() {
            Some((port, listener)) => {
                held.push(listener);
                Ok(port)
            }
            None => bail!(
                "no free port on 127.0.0.1 between {} and {}: stop what listens there",
                RANGE.start,
                RANGE.end
            ),
        };
        Ok(Self {
            etcd_client: next()?,
            etcd_peer: next()?,
            apiserver: next()?,
            controller_manager: next()?,
            scheduler: next()?,
            octavo_scheduler: next()?,
            octavo_controller: next()?,
            octavo_webhook: next()?,
            registry: next()?,
        })
    }
}

/// Every free port once, starting at a position derived from `seed`.
fn free_ports(seed: u64) -> impl Iterator<Item = (u16, TcpListener)> {
    let span = RANGE.end - RANGE.start;
    let start = u16::try_from(seed % u64::from(span)).unwrap_or_default();
    (0..span)
        .map(move |step| RANGE.start + (start + step) % span)
        .filter_map(|port| Some((port, TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()?)))
}

/// Differs between labs that start at the same moment.
fn seed() -> u64 {
    let nanos = jiff::Timestamp::now().as_nanosecond().unsigned_abs() >> 10;
    u64::from(std::process::id()).wrapping_mul(7919)
        ^ u64::try_from(nanos & u128::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picked_ports_differ_and_are_free() {
        let ports = Ports::pick().unwrap();
        let all = [
            ports.etcd_client,
            ports.etcd_peer,
            ports.apiserver,
            ports.controller_manager,
            ports.scheduler,
            ports.octavo_scheduler,
            ports.octavo_controller,
            ports.octavo_webhook,
            ports.registry,
        ];
        let listeners: Vec<_> =
            all.iter().map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port))).collect();
        assert!(all.iter().all(|port| RANGE.contains(port)));
        assert!(listeners.iter().all(Result::is_ok), "{all:?}");
    }

    #[test]
    fn a_taken_port_is_passed_over() {
        let (taken, held) = free_ports(11).next().unwrap();
        let (next, _) = free_ports(u64::from(taken - RANGE.start)).next().unwrap();
        assert_ne!(next, taken);
        drop(held);
    }

    #[test]
    fn the_search_wraps_round_the_end_of_the_range() {
        let last = u64::from(RANGE.end - RANGE.start) - 1;
        let found: Vec<u16> = free_ports(last).take(3).map(|(port, _)| port).collect();
        assert_eq!(found.len(), 3);
        assert!(found.iter().skip(1).all(|port| *port < RANGE.start + 500), "{found:?}");
    }
}
