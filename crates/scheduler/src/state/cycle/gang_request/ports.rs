//! Host ports: two members with the same port cannot share a node.

use std::collections::{BTreeMap, BTreeSet};

use octavo_engine::gang::NodeLimit;
use octavo_kube_io::objects::HostPort;

use crate::predicates::PodRequests;

/// The address that stands for all addresses of a host.
const EVERY_ADDRESS: &str = "0.0.0.0";

/// Limits for the host ports of a gang's members, one for each port and address.
#[derive(Debug, Default)]
pub(super) struct Ports {
    /// Limits of addresses, by protocol and port.
    limits: BTreeMap<(String, u16), BTreeMap<String, u32>>,
}

impl Ports {
    pub(super) fn of<'a>(ports: impl Iterator<Item = &'a HostPort>) -> Self {
        let mut addresses: BTreeMap<(String, u16), BTreeSet<String>> = BTreeMap::new();
        for port in ports {
            addresses.entry(key(port)).or_default().insert(address(port).to_owned());
        }
        let mut next = 0..;
        let mut limits = BTreeMap::new();
        for (key, mut own_addresses) in addresses {
            // A port on every address is a port on each named address.
            if own_addresses.len() > 1 {
                own_addresses.remove(EVERY_ADDRESS);
            }
            limits.insert(key, own_addresses.into_iter().zip(&mut next).collect());
        }
        Self { limits }
    }

    /// The limits of a member.
    pub(super) fn limits(&self, footprint: &PodRequests) -> Vec<NodeLimit> {
        let mut node_limits: Vec<NodeLimit> = Vec::new();
        for port in &footprint.ports {
            let Some(limits) = self.limits.get(&key(port)) else { continue };
            let taken = limits
                .iter()
                .filter(|(named, _)| address(port) == EVERY_ADDRESS || *named == address(port));
            node_limits.extend(taken.map(|(_, over)| NodeLimit { over: *over, most: 1 }));
        }
        node_limits.sort_unstable();
        node_limits.dedup();
        node_limits
    }
}

fn key(port: &HostPort) -> (String, u16) {
    let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
    (protocol.to_owned(), port.port)
}

fn address(port: &HostPort) -> &str {
    if port.ip.is_empty() { EVERY_ADDRESS } else { &port.ip }
}
