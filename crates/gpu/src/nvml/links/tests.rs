use std::collections::BTreeMap;

use super::Links;
use crate::PciAddress;

fn pci(bus: u8) -> PciAddress {
    PciAddress { domain: 0, bus, device: 0, function: 0 }
}

#[test]
fn links_between_gpus_are_counted_by_peer() {
    let at = BTreeMap::from([(pci(1), 0), (pci(2), 1), (pci(3), 2)]);
    let ends = vec![pci(3), pci(2), pci(3), pci(9)];
    let links = Links { version: 3, active: 4, switched: false, ends }.among(&at);
    assert_eq!(links.peers, [(1, 1), (2, 2)], "a device that is no GPU of the node is no peer");
    assert_eq!((links.version, links.links), (3, 4));
}

#[test]
fn links_into_switches_have_no_peers() {
    let at = BTreeMap::from([(pci(1), 0)]);
    let links = Links { version: 4, active: 18, switched: true, ends: vec![pci(1)] }.among(&at);
    assert!(links.switched && links.peers.is_empty());
}
