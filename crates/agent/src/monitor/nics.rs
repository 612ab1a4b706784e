//! Reads the network cards that serve a node's GPUs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use octavo_gpu::{Gpu, NetworkCard, PciPath};

use super::{Monitor, now};
use crate::health::CardLook;

impl Monitor {
    /// Reads the ports of the network cards, unless the policy ignores these.
    pub(super) fn read_nics(&mut self) {
        let Some(sys_root) = self.sys_root.as_ref().filter(|_| self.health.reads_nics()) else {
            self.health.pause_nics();
            return;
        };
        let gpus = self.snapshot.inventory.as_ref().map_or(&[][..], |found| &found.gpus);
        match look(sys_root, gpus) {
            Ok(looks) => {
                self.telemetry.are_nics_unreadable = false;
                self.health.nics(&looks, now());
            }
            Err(error) => {
                if !std::mem::replace(&mut self.telemetry.are_nics_unreadable, true) {
                    let path = sys_root.display();
                    tracing::error!(node = %self.node, %error, %path, "network cards cannot be read: faults of them are not seen; trying again");
                }
            }
        }
    }
}

/// All network cards, and the ports of those that serve GPUs.
fn look(sys_root: &Path, gpus: &[Gpu]) -> io::Result<Vec<CardLook>> {
    let cards = NetworkCard::all(sys_root)?;
    if cards.is_empty() {
        return Ok(Vec::new());
    }
    let mut served: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for gpu in gpus {
        let Some(path) = PciPath::of(sys_root, gpu.pci) else { continue };
        for card in NetworkCard::serving(&cards, &path) {
            served.entry(&card.name).or_default().insert(gpu.uuid.clone());
        }
    }
    let look = |card: &NetworkCard| {
        let gpus = served.get(&*card.name).cloned().unwrap_or_default();
        let ports = card.ports.iter().filter(|_| !gpus.is_empty());
        let ports = ports.map(|port| (*port, card.port(sys_root, *port).ok())).collect();
        CardLook { pci: card.pci, name: card.name.clone(), gpus, ports }
    };
    Ok(cards.iter().map(look).collect())
}

#[cfg(test)]
mod tests;
